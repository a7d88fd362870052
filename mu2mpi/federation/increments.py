"""Kernels that add clipped increments or gradients of samples to messages, as integers on the grid."""

import numpy as np

from mu2mpi.core.kernels import inline, reduction, round_to_integer
from mu2mpi.losses.model.ball import projection_factor, squared_norm
from mu2mpi.losses.model.linear import (
    TILE,
    empty_block,
    load_sample,
    model_margins,
    residual,
    two_model_margins,
)

# Range of squared norms of c and z without overflow of their product or relevant underflow of squares
MIN_SQUARE = 2.0**-500
MAX_SQUARE = 2.0**500


@inline
def _add_outer_products(q, c, z):  # type: ignore[no-untyped-def]
    """Add the outer products c_i z_i^T of a block of samples to q, each rounded on its own."""
    if z.shape[0] == 1:
        for k in range(q.shape[0]):
            row = q[k]
            for j in range(row.size):
                row[j] += round_to_integer(c[0, k] * z[0, j])
        return
    for first in range(0, q.shape[1], TILE):
        stop = min(first + TILE, q.shape[1])
        z0, z1, z2, z3 = z[0, first:stop], z[1, first:stop], z[2, first:stop], z[3, first:stop]
        for k in range(q.shape[0]):
            row, c0, c1, c2, c3 = q[k, first:stop], c[0, k], c[1, k], c[2, k], c[3, k]
            for j in range(row.size):
                pair = round_to_integer(c0 * z0[j]) + round_to_integer(c1 * z1[j])
                row[j] += pair + round_to_integer(c2 * z2[j]) + round_to_integer(c3 * z3[j])


@inline
def _clip(c, squared_z, reduced_clip_norm, grid_spacing):  # type: ignore[no-untyped-def]
    """Clip c z^T by scaling c, in grid units; return the unclipped squared norm, and if it was clipped."""
    # An increment whose norm leaves the range of floating-point numbers, or is NaN, becomes 0.
    squared_c = squared_norm(c)
    squared = squared_c * squared_z
    if not (MIN_SQUARE <= squared_c <= MAX_SQUARE and MIN_SQUARE <= squared_z <= MAX_SQUARE):
        c[:] = 0.0
        return squared, not squared <= 0.0
    factor = projection_factor(squared, reduced_clip_norm)
    for k in range(c.size):
        c[k] *= factor / grid_spacing
    return squared, factor < 1.0


@inline
def _add_clipped(q, c, z, count, reduced_clip_norm, grid_spacing):  # type: ignore[no-untyped-def]
    """Add clipped products c_i z_i^T to q; return their largest unclipped squared norm and clipped count."""
    largest, clipped = 0.0, 0
    for i in range(count):
        squared_z = squared_norm(z[i, : q.shape[1]])
        squared, is_clipped = _clip(c[i], squared_z, reduced_clip_norm, grid_spacing)
        largest = max(largest, squared)
        clipped += is_clipped
        if not squared_z <= MAX_SQUARE:
            z[i] = 0.0
    for i in range(count, c.shape[0]):
        for k in range(c.shape[1]):
            c[i, k] = 0.0
    _add_outer_products(q, c, z)
    return largest, clipped


@reduction
def _row_products(x, y, row, scale, bias):  # type: ignore[no-untyped-def]
    """Return the inner products of model rows x and y with a sample's features z, and z's squared norm."""
    product_x, product_y, square = x[row.size] * bias, y[row.size] * bias, bias * bias
    for j in range(row.size):
        z = scale * np.float64(row[j])
        product_x += x[j] * z
        product_y += y[j] * z
        square += z * z
    return product_x, product_y, square


@reduction
def _row_product(x, row, scale, bias):  # type: ignore[no-untyped-def]
    """Return the inner product of a model row x with a sample's features z, and z's squared norm."""
    product_x, square = x[row.size] * bias, bias * bias
    for j in range(row.size):
        z = scale * np.float64(row[j])
        product_x += x[j] * z
        square += z * z
    return product_x, square


@inline
def _add_row(q, c, row, scale, bias):  # type: ignore[no-untyped-def]
    """Add c times a sample's features z, rounded, to q; nothing if c is 0, even if z is not finite."""
    if c == 0.0:
        return
    for j in range(row.size):
        q[j] += round_to_integer(c * (scale * np.float64(row[j])))
    q[row.size] += round_to_integer(c * bias)


def add_increments(  # type: ignore[no-untyped-def]
    q,
    x,
    x_previous,
    features,
    labels,
    scales,
    bias,
    first,
    end,
    t,
    reduced_clip_norm,
    grid_spacing,
    block_size,
):
    """Add the increments s_{t,i} of samples, clipped and rounded to the grid, to the sum q of messages.

    An increment is c z^T with c = r + (t - 1)(r - r~), of norm ||c|| ||z|| <= S (Lemmas 4.1 and 4.2).
    Samples are those of `HostedSamples` from `first` to `end`, exclusive; q, x_t and x_{t-1} have shape
    (rows, F), and q is in grid units. `block_size` sets the order of sums, so it must not depend on the
    number of ranks. Returned are the largest unclipped squared norm and the number of clipped increments.
    """
    classes, width = x.shape
    z = empty_block(block_size, width)
    margins, margins_previous = np.empty((block_size, classes)), np.empty((block_size, classes))
    largest, clipped = 0.0, 0
    for start in range(first, end, block_size):
        count = min(block_size, end - start)
        for i in range(count):
            load_sample(features[start + i], scales[start + i], bias, z[i])
        two_model_margins(x, x_previous, z, margins, margins_previous)
        for i in range(count):
            r, r_previous = margins[i], margins_previous[i]
            residual(r, labels[start + i])
            residual(r_previous, labels[start + i])
            for k in range(classes):
                r[k] += (t - 1.0) * (r[k] - r_previous[k])
        squared, clipped_now = _add_clipped(q, margins, z, count, reduced_clip_norm, grid_spacing)
        largest = max(largest, squared)
        clipped += clipped_now
    return largest, clipped


def add_gradients(  # type: ignore[no-untyped-def]
    q,
    x,
    x_previous,
    features,
    labels,
    scales,
    bias,
    first,
    end,
    t,
    reduced_clip_norm,
    grid_spacing,
    block_size,
):
    """Set q to the sum of samples' clipped, rounded gradients at x_t; parameters as for `add_increments`."""
    q[:] = 0
    classes, width = x.shape
    z = empty_block(block_size, width)
    margins, workspace = np.empty((block_size, classes)), np.empty((block_size, (classes + 1) // 2))
    largest, clipped = 0.0, 0
    for start in range(first, end, block_size):
        count = min(block_size, end - start)
        for i in range(count):
            load_sample(features[start + i], scales[start + i], bias, z[i])
        model_margins(x, z, margins, workspace)
        for i in range(count):
            residual(margins[i], labels[start + i])
        squared, clipped_now = _add_clipped(q, margins, z, count, reduced_clip_norm, grid_spacing)
        largest = max(largest, squared)
        clipped += clipped_now
    return largest, clipped


def add_increments_to_row(  # type: ignore[no-untyped-def]
    q,
    x,
    x_previous,
    features,
    labels,
    scales,
    bias,
    first,
    end,
    t,
    reduced_clip_norm,
    grid_spacing,
    block_size,
):
    """Add clipped increments of samples to q for a model of one row: `add_increments` without blocks."""
    margins = np.empty((2, 1))
    largest, clipped = 0.0, 0
    for i in range(first, end):
        r, r_previous = margins[0], margins[1]
        r[0], r_previous[0], square = _row_products(x[0], x_previous[0], features[i], scales[i], bias)
        residual(r, labels[i])
        residual(r_previous, labels[i])
        r[0] += (t - 1.0) * (r[0] - r_previous[0])
        squared, is_clipped = _clip(r, square, reduced_clip_norm, grid_spacing)
        largest = max(largest, squared)
        clipped += is_clipped
        _add_row(q[0], r[0], features[i], scales[i], bias)
    return largest, clipped


def add_gradients_to_row(  # type: ignore[no-untyped-def]
    q,
    x,
    x_previous,
    features,
    labels,
    scales,
    bias,
    first,
    end,
    t,
    reduced_clip_norm,
    grid_spacing,
    block_size,
):
    """Set q to the sum of clipped gradients for a model of one row: `add_gradients` without blocks."""
    q[0] = 0
    r = np.empty(1)
    largest, clipped = 0.0, 0
    for i in range(first, end):
        r[0], square = _row_product(x[0], features[i], scales[i], bias)
        residual(r, labels[i])
        squared, is_clipped = _clip(r, square, reduced_clip_norm, grid_spacing)
        largest = max(largest, squared)
        clipped += is_clipped
        _add_row(q[0], r[0], features[i], scales[i], bias)
    return largest, clipped
