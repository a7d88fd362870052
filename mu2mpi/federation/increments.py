"""Kernels that add clipped increments or gradients of samples to messages, as integers on the grid."""

import numpy as np

from mu2mpi.core.kernels import inline, reduction_kernel, round_to_integer
from mu2mpi.losses.model.ball import projection_factor, squared_norm
from mu2mpi.losses.model.linear import (
    FEATURES_PER_TILE,
    load_sample,
    model_margins,
    residual,
    two_model_margins,
    zero_sample_block,
)

# Range of squared norms of c and z without overflow of their product or relevant underflow of squares
MIN_SAFE_SQUARED_NORM = 2.0**-500
MAX_SAFE_SQUARED_NORM = 2.0**500
HAS_MOMENTUM = True  # placeholder in kernel templates: whether increments are of corrected momentum


@inline
def _add_outer_products(message, coefficients, z):  # type: ignore[no-untyped-def]
    """Add the outer products c_i z_i^T of a block of samples to a message, each rounded on its own."""
    if z.shape[0] == 1:
        for k in range(message.shape[0]):
            row = message[k]
            for j in range(row.size):
                row[j] += round_to_integer(coefficients[0, k] * z[0, j])
        return
    for first in range(0, message.shape[1], FEATURES_PER_TILE):
        stop = min(first + FEATURES_PER_TILE, message.shape[1])
        z0, z1, z2, z3 = z[0, first:stop], z[1, first:stop], z[2, first:stop], z[3, first:stop]
        for k in range(message.shape[0]):
            row, c = message[k, first:stop], coefficients[:, k]
            c0, c1, c2, c3 = c[0], c[1], c[2], c[3]
            for j in range(row.size):
                pair = round_to_integer(c0 * z0[j]) + round_to_integer(c1 * z1[j])
                row[j] += pair + round_to_integer(c2 * z2[j]) + round_to_integer(c3 * z3[j])


@inline
def _clip(coefficients, squared_z, reduced_clip_norm, grid_spacing):  # type: ignore[no-untyped-def]
    """Clip c z^T by scaling c, in grid units; return its squared norm, and whether it was clipped."""
    # An increment whose norm leaves the range of floating-point numbers, or is NaN, becomes 0.
    squared_c = squared_norm(coefficients)
    squared = squared_c * squared_z
    is_in_range = MIN_SAFE_SQUARED_NORM <= squared_c <= MAX_SAFE_SQUARED_NORM
    if not (is_in_range and MIN_SAFE_SQUARED_NORM <= squared_z <= MAX_SAFE_SQUARED_NORM):
        coefficients[:] = 0.0
        return squared, not squared <= 0.0
    factor = projection_factor(squared, reduced_clip_norm)
    for k in range(coefficients.size):
        coefficients[k] *= factor / grid_spacing
    return squared, factor < 1.0


@inline
def _add_clipped_products(  # type: ignore[no-untyped-def]
    message, coefficients, z, count, reduced_clip_norm, grid_spacing
):
    """Add clipped products c_i z_i^T to a message; return their largest squared norm, and number clipped."""
    largest, clipped_count = 0.0, 0
    for i in range(count):
        squared_z = squared_norm(z[i, : message.shape[1]])
        squared, is_clipped = _clip(coefficients[i], squared_z, reduced_clip_norm, grid_spacing)
        largest = max(largest, squared)
        clipped_count += is_clipped
        if not squared_z <= MAX_SAFE_SQUARED_NORM:
            z[i] = 0.0
    for i in range(count, coefficients.shape[0]):
        for k in range(coefficients.shape[1]):
            coefficients[i, k] = 0.0
    _add_outer_products(message, coefficients, z)
    return largest, clipped_count


@reduction_kernel
def _two_margins(x, x_previous, row, feature_scale, bias):  # type: ignore[no-untyped-def]
    """Return the inner products of two model rows with a sample's features z, and z's squared norm."""
    product_x, product_previous, square = x[row.size] * bias, x_previous[row.size] * bias, bias * bias
    for j in range(row.size):
        z = feature_scale * np.float64(row[j])
        product_x += x[j] * z
        product_previous += x_previous[j] * z
        square += z * z
    return product_x, product_previous, square


@reduction_kernel
def _margin(x, row, feature_scale, bias):  # type: ignore[no-untyped-def]
    """Return the inner product of a model row x with a sample's features z, and z's squared norm."""
    product_x, square = x[row.size] * bias, bias * bias
    for j in range(row.size):
        z = feature_scale * np.float64(row[j])
        product_x += x[j] * z
        square += z * z
    return product_x, square


def add_increments(  # type: ignore[no-untyped-def]
    message, x, x_previous, features, labels, feature_scales, bias,
    first_sample, end_sample, t, reduced_clip_norm, grid_spacing, block_size,
):  # fmt: skip
    """Add increments of samples, clipped and rounded to the grid, to a sum of messages (kernel template).

    The increment s_{t,i} is c z^T with c = r + (t - 1)(r - r~), of norm ||c|| ||z|| <= S (Lemmas 4.1 and
    4.2); or the gradient r z^T at x_t unless `HAS_MOMENTUM`. Samples are those of `HostedSamples` from
    `first_sample` to `end_sample`, exclusive; `message`, x_t and x_{t-1} have shape (rows, F), and `message`
    is in grid units. `block_size` sets the order of sums, so it must not depend on the number of ranks.
    Returned are the largest unclipped squared norm and the number of clipped increments.
    """
    classes, width = x.shape
    z = zero_sample_block(block_size, width)
    margins, margins_previous = np.empty((block_size, classes)), np.empty((block_size, classes))
    largest, clipped_count = 0.0, 0
    for start in range(first_sample, end_sample, block_size):
        count = min(block_size, end_sample - start)
        for i in range(count):
            load_sample(features[start + i], feature_scales[start + i], bias, z[i])
        if HAS_MOMENTUM:
            two_model_margins(x, x_previous, z, margins, margins_previous)
        else:
            model_margins(x, z, margins, margins_previous)
        for i in range(count):
            r, r_previous = margins[i], margins_previous[i]
            residual(r, labels[start + i])
            if HAS_MOMENTUM:
                residual(r_previous, labels[start + i])
                for k in range(classes):
                    r[k] += (t - 1.0) * (r[k] - r_previous[k])
        squared, clipped = _add_clipped_products(message, margins, z, count, reduced_clip_norm, grid_spacing)
        largest = max(largest, squared)
        clipped_count += clipped
    return largest, clipped_count


def add_increments_one_row(  # type: ignore[no-untyped-def]
    message, x, x_previous, features, labels, feature_scales, bias,
    first_sample, end_sample, t, reduced_clip_norm, grid_spacing, block_size,
):  # fmt: skip
    """Add increments to a message for a model of one row: `add_increments` without blocks."""
    margins = np.empty((2, 1))
    r, r_previous = margins[0], margins[1]
    largest, clipped_count = 0.0, 0
    for i in range(first_sample, end_sample):
        row, scale = features[i], feature_scales[i]
        if HAS_MOMENTUM:
            r[0], r_previous[0], square = _two_margins(x[0], x_previous[0], row, scale, bias)
            residual(r, labels[i])
            residual(r_previous, labels[i])
            r[0] += (t - 1.0) * (r[0] - r_previous[0])
        else:
            r[0], square = _margin(x[0], row, scale, bias)
            residual(r, labels[i])
        squared, is_clipped = _clip(r, square, reduced_clip_norm, grid_spacing)
        largest = max(largest, squared)
        clipped_count += is_clipped
        c = r[0]
        if c != 0.0:  # it is 0 for samples that are not finite
            for j in range(row.size):
                message[0, j] += round_to_integer(c * (scale * np.float64(row[j])))
            message[0, row.size] += round_to_integer(c * bias)
    return largest, clipped_count
