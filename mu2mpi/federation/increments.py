"""Kernels that add clipped increments or gradients of samples to messages, as integers on the grid."""

import numpy as np

from mu2mpi.core.kernels import ROUNDING_ADDEND, float_to_bits, fma, inline, integer_part, reduction_kernel
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
RESIDUAL_BOUND = 1.0  # placeholder in kernel templates: bound R on the norms of residuals at margins of 0
BLOCKS_PER_GROUP, ROWS_PER_GROUP = 8, 16  # of second moments: rows and samples that fit into the L2 cache
MIN_FULL_WEIGHT = 0.99  # Samples of smaller weights count as clipped; rounding to the grid takes 0.7 %.


@inline
def _add_outer_products(message, coefficients, z, columns):  # type: ignore[no-untyped-def]
    """Add the first columns of outer products c_i z_i^T to a message, each product rounded on its own."""
    for i in range(z.shape[0]):
        for k in range(message.shape[0]):
            row, c = message[k], coefficients[i, k]
            for j in range(columns):
                row[j] += integer_part(fma(c, z[i, j], ROUNDING_ADDEND))


@inline
def _add_block_outer_products(message, coefficients, z, columns):  # type: ignore[no-untyped-def]
    """Add the same for a block and an even number of rows, if `_tie_mask` excludes half-integer products.

    The sum of a product and an integer in [2^52, 2^53) is rounded to an integer. Only if the product is a
    half-integer does its rounding depend on what it is added to.
    """
    for first in range(0, columns, FEATURES_PER_TILE):
        stop = min(first + FEATURES_PER_TILE, columns)
        z0, z1, z2 = z[0, first:stop], z[1, first:stop], z[2, first:stop]
        z3, z4 = z[3, first:stop], z[4, first:stop]
        for k in range(0, message.shape[0], 2):
            row, next_row = message[k, first:stop], message[k + 1, first:stop]
            c, d = coefficients[:, k], coefficients[:, k + 1]
            c0, c1, c2, c3, c4 = c[0], c[1], c[2], c[3], c[4]
            d0, d1, d2, d3, d4 = d[0], d[1], d[2], d[3], d[4]
            for j in range(row.size):
                c_sum, d_sum = fma(c0, z0[j], ROUNDING_ADDEND), fma(d0, z0[j], ROUNDING_ADDEND)
                c_sum, d_sum = fma(c1, z1[j], c_sum), fma(d1, z1[j], d_sum)
                c_sum, d_sum = fma(c2, z2[j], c_sum), fma(d2, z2[j], d_sum)
                c_sum, d_sum = fma(c3, z3[j], c_sum), fma(d3, z3[j], d_sum)
                row[j] += integer_part(fma(c4, z4[j], c_sum))
                next_row[j] += integer_part(fma(d4, z4[j], d_sum))


@inline
def _tie_mask(max_product):  # type: ignore[no-untyped-def]
    """Return significand bits: if a coefficient c has one of them, then no c z is a half-integer.

    If c z = n / 2 with n odd, the significands of c and z without trailing zeros multiply to n, so c has at
    most log2(n) bits. As only rounding exceeds the largest product L < 2^e, n < 4 L < 2^(e + 2): the last
    53 - (e + 2) bits of c are 0. The mask is 0 from e = 48 on, where five products may sum to 2^51.
    """
    e = (float_to_bits(max_product) >> 52) - 1022
    return (1 << min(52, 51 - e)) - 1 if e < 48 else 0


@inline
def _add_block(message, coefficients, z, count, mask, columns):  # type: ignore[no-untyped-def]
    """Add outer products of the first `count` samples of a block; set the other coefficients to 0."""
    block_rows = len(message) // 2 * 2 if len(z) > 1 else 0  # rows of which products of a block are summed
    for i in range(len(z)):
        for k in range(coefficients.shape[1]):
            if i >= count:
                coefficients[i, k] = 0.0
            elif float_to_bits(coefficients[i, k]) & mask == 0 and coefficients[i, k] != 0.0:
                block_rows = 0
    _add_block_outer_products(message[:block_rows], coefficients, z, columns)
    _add_outer_products(message[block_rows:], coefficients[:, block_rows:], z[:count], columns)


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
    (classes, width), largest, clipped_count = x.shape, 0.0, 0
    z, squared_norms = zero_sample_block(block_size, width), np.empty(block_size)
    margins, margins_previous = np.empty((block_size, classes)), np.empty((block_size, classes))
    mask = _tie_mask(reduced_clip_norm / grid_spacing)
    for start in range(first_sample, end_sample, block_size):
        count = min(block_size, end_sample - start)
        for i in range(count):
            load_sample(features[start + i], feature_scales[start + i], bias, z[i])
            squared_norms[i] = squared_norm(z[i, :width])
        if HAS_MOMENTUM:
            two_model_margins(x, x_previous, z, width, margins, margins_previous)
        else:
            model_margins(x, z, width, margins, margins_previous)
        for i in range(count):
            r, r_previous = margins[i], margins_previous[i]
            residual(r, labels[start + i])
            if HAS_MOMENTUM:
                residual(r_previous, labels[start + i])
                for k in range(classes):
                    r[k] += (t - 1.0) * (r[k] - r_previous[k])
            squared, is_clipped = _clip(r, squared_norms[i], reduced_clip_norm, grid_spacing)
            largest = max(largest, squared)
            clipped_count += is_clipped
            if not squared_norms[i] <= MAX_SAFE_SQUARED_NORM:
                z[i] = 0.0
        _add_block(message, margins, z, count, mask, width)
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
                message[0, j] += integer_part(fma(c, scale * np.float64(row[j]), ROUNDING_ADDEND))
            message[0, row.size] += integer_part(fma(c, bias, ROUNDING_ADDEND))
    return largest, clipped_count


def add_second_moments(  # type: ignore[no-untyped-def]
    message, x, x_previous, features, labels, feature_scales, bias,
    first_sample, end_sample, t, reduced_clip_norm, grid_spacing, block_size,
):  # fmt: skip
    """Add second moments w (z, s r) z^T of samples to a message of shape (F + rows, F), as `add_increments`.

    r is the residual at x_t, clipped to the norm R; s = B / R, w = min(1, B^2 / ||z||^2), B^2 = C / sqrt(2).
    """
    (rows, width), largest, clipped_count = x.shape, 0.0, 0
    max_square, R2 = reduced_clip_norm / np.sqrt(2.0), RESIDUAL_BOUND * RESIDUAL_BOUND
    squared_scale = max_square / R2
    n = block_size * BLOCKS_PER_GROUP
    z, c = zero_sample_block(n, width), np.empty((n, width + rows))
    margins, half_margins = np.empty((block_size, rows)), np.empty((block_size, rows))
    mask = _tie_mask(reduced_clip_norm / grid_spacing)
    for start in range(first_sample, end_sample, n):
        count = min(n, end_sample - start)
        for i in range(count):
            load_sample(features[start + i], feature_scales[start + i], bias, z[i])
        for i in range(count):
            if i % block_size == 0:
                model_margins(x, z[i : i + block_size], width, margins, half_margins)
            r = margins[i % block_size]
            residual(r, labels[start + i])
            square, residual_square = squared_norm(z[i, :width]), squared_norm(r)
            largest = max(largest, square * (square + residual_square * squared_scale))
            weight, squared_factor = min(1.0, max_square / square), min(1.0, R2 / residual_square)
            is_in_range = MIN_SAFE_SQUARED_NORM <= square <= MAX_SAFE_SQUARED_NORM
            if not (is_in_range and residual_square <= MAX_SAFE_SQUARED_NORM):
                z[i], r[:], weight, squared_factor = 0.0, 0.0, 0.0, 0.0
            clipped_count += min(weight, squared_factor) < MIN_FULL_WEIGHT
            for j in range(width):
                c[i, j] = weight / grid_spacing * z[i, j]
            for k in range(rows):
                c[i, width + k] = r[k] * (weight / grid_spacing * np.sqrt(squared_scale * squared_factor))
        # The same rows of the message, which stay in the cache, for all blocks; moments below the diagonal
        for first in range(0, width + rows, ROWS_PER_GROUP):
            stop = min(first + ROWS_PER_GROUP, width + rows)
            for i in range(0, count, block_size):
                block, size = slice(i, i + block_size), min(block_size, count - i)
                _add_block(message[first:stop], c[block, first:stop], z[block], size, mask, min(stop, width))
    for i in range(width):
        message[:i, i] = message[i, :i]
    return largest, clipped_count
