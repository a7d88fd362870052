"""Numba kernels of linear models: margins of samples, and sums of gradients, which are outer products."""

import math
from typing import Any

import numpy as np

from mu2mpi.core.arrays import FloatArray
from mu2mpi.core.kernels import aligned_empty, inline, kernel, reduction_kernel

SAMPLES_PER_BLOCK = 5  # samples per block, whose margins are computed with one read of the model
FEATURES_PER_TILE = 400  # features per tile: a block of samples and two rows of models fit into the L1 cache


def residual(margins: Any, label: Any) -> None:
    """Replace a sample's margins by its residual: placeholder of `Loss.residual_kernel` in templates."""
    raise NotImplementedError


def loss(margins: Any, label: Any) -> tuple[float, bool]:
    """Return the loss and score of a sample: placeholder of `Loss.loss_kernel` in kernel templates."""
    raise NotImplementedError


@inline
def zero_sample_block(samples, features):  # type: ignore[no-untyped-def]
    """Return zeros for a block of samples, shape (samples, >= features), each row aligned to a cache line."""
    padded = (features + 7) // 8 * 8
    z = aligned_empty(samples * padded)
    for j in range(z.size):
        z[j] = 0.0
    return z.reshape(samples, padded)


@inline
def load_sample(row, scale, bias, z):  # type: ignore[no-untyped-def]
    """Write a sample to the start of `z`: its stored features times its scale, then the bias feature."""
    for j in range(row.size):
        z[j] = scale * np.float64(row[j])
    z[row.size] = bias


@reduction_kernel
def _inner_products_2x5(x, y, z0, z1, z2, z3, z4):  # type: ignore[no-untyped-def]
    """Return the inner products of vectors x and y with five vectors z0 to z4, reading each vector once."""
    x0 = x1 = x2 = x3 = x4 = 0.0
    y0 = y1 = y2 = y3 = y4 = 0.0
    for j in range(x.size):
        x0, y0 = x0 + x[j] * z0[j], y0 + y[j] * z0[j]
        x1, y1 = x1 + x[j] * z1[j], y1 + y[j] * z1[j]
        x2, y2 = x2 + x[j] * z2[j], y2 + y[j] * z2[j]
        x3, y3 = x3 + x[j] * z3[j], y3 + y[j] * z3[j]
        x4, y4 = x4 + x[j] * z4[j], y4 + y[j] * z4[j]
    return (x0, x1, x2, x3, x4), (y0, y1, y2, y3, y4)


@reduction_kernel
def _inner_products_2x1(x, y, z):  # type: ignore[no-untyped-def]
    x_product = y_product = 0.0
    for j in range(x.size):
        x_product += x[j] * z[j]
        y_product += y[j] * z[j]
    return x_product, y_product


@inline
def two_model_margins(x, y, z, width, x_margins, y_margins):  # type: ignore[no-untyped-def]
    """Write margins of two models x and y, shape (K, >= F), on one sample or a block z, shape (n, >= F)."""
    if z.shape[0] == 1:
        for k in range(x.shape[0]):
            products = _inner_products_2x1(x[k, :width], y[k, :width], z[0, :width])
            x_margins[0, k], y_margins[0, k] = products
        return
    for i in range(SAMPLES_PER_BLOCK):
        for k in range(x.shape[0]):
            x_margins[i, k] = y_margins[i, k] = 0.0
    for first in range(0, width, FEATURES_PER_TILE):
        stop = min(first + FEATURES_PER_TILE, width)
        z0, z1, z2 = z[0, first:stop], z[1, first:stop], z[2, first:stop]
        z3, z4 = z[3, first:stop], z[4, first:stop]
        for k in range(x.shape[0]):
            x_row, y_row = x[k, first:stop], y[k, first:stop]
            x_products, y_products = _inner_products_2x5(x_row, y_row, z0, z1, z2, z3, z4)
            for i in range(SAMPLES_PER_BLOCK):
                x_margins[i, k] += x_products[i]
                y_margins[i, k] += y_products[i]


@inline
def model_margins(x, z, width, margins, half_margins):  # type: ignore[no-untyped-def]
    """Write margins of a model x, shape (K, >= F), on one sample or a block z to `margins`, shape (n, K)."""
    half, upper_start = (x.shape[0] + 1) // 2, x.shape[0] // 2  # both halves of the rows share reads of z
    two_model_margins(x[:half], x[upper_start:], z, width, margins, half_margins)
    for i in range(z.shape[0]):
        for k in range(half):
            margins[i, upper_start + k] = half_margins[i, k]


# The functions below replace BLAS, whose last bits depend on its number of threads.


def inner(x: FloatArray, y: FloatArray) -> float:
    """Return the inner product of two arrays of the same shape."""
    return float(np.sum(x * y))


def norm(x: FloatArray) -> float:
    """Return the Euclidean norm of an array."""
    return math.sqrt(inner(x, x))


@kernel
def all_margins(x, z):  # type: ignore[no-untyped-def]
    """Return the margins, shape (n, K), of a model x, shape (K, F), on samples z, shape (n, F)."""
    (classes, width), n = x.shape, SAMPLES_PER_BLOCK
    margins, half_margins = np.empty((len(z) + n, classes)), np.empty((n, (classes + 1) // 2))
    block = zero_sample_block(n, width)
    for start in range(0, len(z), n):
        for i in range(min(n, len(z) - start)):
            for j in range(width):
                block[i, j] = z[start + i, j]
        model_margins(x, block, width, margins[start : start + n], half_margins)
    return margins[: len(z)]


@kernel
def sum_outer_products(r, z):  # type: ignore[no-untyped-def]
    """Return the sum over samples of r_i z_i^T, shape (K, F), for r of shape (n, K) and z of shape (n, F)."""
    gradient = np.zeros((r.shape[1], z.shape[1]))
    blocks_end = len(z) // 4 * 4
    for i in range(0, blocks_end, 4):
        for first in range(0, z.shape[1], FEATURES_PER_TILE):
            stop = min(first + FEATURES_PER_TILE, z.shape[1])
            z0, z1 = z[i, first:stop], z[i + 1, first:stop]
            z2, z3 = z[i + 2, first:stop], z[i + 3, first:stop]
            for k in range(r.shape[1]):
                row, r0, r1, r2, r3 = gradient[k, first:stop], r[i, k], r[i + 1, k], r[i + 2, k], r[i + 3, k]
                for j in range(row.size):
                    row[j] += (r0 * z0[j] + r1 * z1[j]) + (r2 * z2[j] + r3 * z3[j])
    for i in range(blocks_end, len(z)):
        for k in range(r.shape[1]):
            row = gradient[k]
            for j in range(row.size):
                row[j] += r[i, k] * z[i, j]
    return gradient


def solve_regularised(matrix: FloatArray, rows: FloatArray, level: float) -> FloatArray:
    """Return f(H) b for each row b, of a symmetric matrix H, with f(s) = (s + m) / (s^2 + m s + m^2).

    Eigenvalues s above the level m are inverted up to a relative error of (m / s)^2. |f| is at most 1 / m.
    """
    z, n = np.vstack([matrix, rows]), len(matrix)
    system: FloatArray = all_margins(matrix, z) + level * z
    system[np.diag_indices(n)] += level * level
    _solve_below(system)
    return system[n:]


@reduction_kernel
def _inner_product(x, y):  # type: ignore[no-untyped-def]
    product = 0.0
    for j in range(x.size):
        product += x[j] * y[j]
    return product


@kernel
def _solve_below(system):  # type: ignore[no-untyped-def]
    """Replace rows b below a positive definite square A by solutions of A x = b, and A by its factor."""
    n = system.shape[1]
    for i in range(len(system)):
        for j in range(min(i + 1, n)):
            s = system[i, j] - _inner_product(system[i, :j], system[j, :j])
            system[i, j] = np.sqrt(s) if i == j else s / system[j, j]
    for x in system[n:]:
        for i in range(n - 1, -1, -1):
            x[i] /= system[i, i]
            for j in range(i):
                x[j] -= x[i] * system[i, j]


def sum_losses(x, features, labels, scales, bias):  # type: ignore[no-untyped-def]
    """Return a model's loss and score, summed over stored samples with scale factors (kernel template)."""
    classes, width = x.shape
    z, margins = zero_sample_block(SAMPLES_PER_BLOCK, width), np.empty((SAMPLES_PER_BLOCK, classes))
    half_margins = np.empty((SAMPLES_PER_BLOCK, (classes + 1) // 2))
    loss_sum, score_sum = 0.0, 0
    for start in range(0, labels.size, SAMPLES_PER_BLOCK):
        count = min(SAMPLES_PER_BLOCK, labels.size - start)
        for i in range(count):
            load_sample(features[start + i], scales[start + i], bias, z[i])
        model_margins(x, z, width, margins, half_margins)
        for i in range(count):
            sample_loss, sample_score = loss(margins[i], labels[start + i])
            loss_sum += sample_loss
            score_sum += sample_score
    return loss_sum, score_sum
