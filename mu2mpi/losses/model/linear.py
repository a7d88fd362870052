"""Linear models: samples as kernels take them, and margins, the inner products x z with a model x (K, F).

A gradient is the outer product r z^T of a residual and the sample: nothing of size K F is formed for it.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.core.kernels import inline, kernel, reduction, scratch

BATCH = 4  # samples whose inner products with the model are computed together, sharing each read of it
TILE = 400  # features for which a batch of samples and two rows of models fit into the fastest cache


def residual(margins: Any, label: Any) -> None:
    """Turn margins in place into the residual; kernels are compiled with that of a problem."""
    raise NotImplementedError


def loss(margins: Any, label: Any) -> tuple[float, bool]:
    """Return the loss, and whether the model is right; kernels are compiled with that of a problem."""
    raise NotImplementedError


@inline
def empty_batch(samples, features):  # type: ignore[no-untyped-def]
    """Return room for some samples, zeros at first, each at the start of a cache line."""
    padded = (features + 7) // 8 * 8
    z = scratch(samples * padded)
    for j in range(z.size):
        z[j] = 0.0
    return z.reshape(samples, padded)


@inline
def load_sample(row, scale, bias, z):  # type: ignore[no-untyped-def]
    """Fill the start of `z` with a stored row of features, scaled, and the bias feature."""
    for j in range(row.size):
        z[j] = scale * np.float64(row[j])
    z[row.size] = bias


@reduction
def _eight_products(x, y, z0, z1, z2, z3):  # type: ignore[no-untyped-def]
    """Return the inner products of x with four vectors, then those of y, reading each vector once."""
    x0 = x1 = x2 = x3 = 0.0
    y0 = y1 = y2 = y3 = 0.0
    for j in range(x.size):
        x0 += x[j] * z0[j]
        y0 += y[j] * z0[j]
        x1 += x[j] * z1[j]
        y1 += y[j] * z1[j]
        x2 += x[j] * z2[j]
        y2 += y[j] * z2[j]
        x3 += x[j] * z3[j]
        y3 += y[j] * z3[j]
    return (x0, x1, x2, x3), (y0, y1, y2, y3)


@reduction
def _two_products(x, y, z):  # type: ignore[no-untyped-def]
    """Return the inner products of x and of y with a vector."""
    of_x = of_y = 0.0
    for j in range(x.size):
        of_x += x[j] * z[j]
        of_y += y[j] * z[j]
    return of_x, of_y


@inline
def two_margins(x, y, z, at_x, at_y):  # type: ignore[no-untyped-def]
    """Compute margins at_x = x z and at_y = y z, shape (n, >= K), of a sample or batch z, (n, >= F)."""
    if z.shape[0] == 1:
        for k in range(x.shape[0]):
            at_x[0, k], at_y[0, k] = _two_products(x[k], y[k], z[0, : x.shape[1]])
        return
    for i in range(BATCH):
        for k in range(x.shape[0]):
            at_x[i, k] = at_y[i, k] = 0.0
    for first in range(0, x.shape[1], TILE):
        stop = min(first + TILE, x.shape[1])
        z0, z1, z2, z3 = z[0, first:stop], z[1, first:stop], z[2, first:stop], z[3, first:stop]
        for k in range(x.shape[0]):
            of_x, of_y = _eight_products(x[k, first:stop], y[k, first:stop], z0, z1, z2, z3)
            for i in range(BATCH):
                at_x[i, k] += of_x[i]
                at_y[i, k] += of_y[i]


@inline
def model_margins(x, z, margins, of_rest):  # type: ignore[no-untyped-def]
    """Compute the margins x z of a sample or a batch, shape (n, K), by two halves of x that share z."""
    half, rest = (x.shape[0] + 1) // 2, x.shape[0] // 2
    two_margins(x[:half], x[rest:], z, margins, of_rest)
    for i in range(z.shape[0]):
        for k in range(half):
            margins[i, rest + k] = of_rest[i, k]


# What follows takes the place of a library of linear algebra, whose number of threads changes last bits.


def inner(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Return the inner product of two arrays of one shape."""
    return float(np.sum(x * y))


def norm(x: NDArray[np.float64]) -> float:
    """Return the Euclidean norm of an array."""
    return math.sqrt(inner(x, x))


@kernel
def all_margins(x, z):  # type: ignore[no-untyped-def]
    """Return the margins x z of samples z, shape (n, F), as an array of shape (n, K)."""
    margins, of_rest = np.empty((len(z), len(x))), np.empty((BATCH, (len(x) + 1) // 2))
    in_batches = len(z) // BATCH * BATCH
    for i in range(0, in_batches, BATCH):
        model_margins(x, z[i : i + BATCH], margins[i : i + BATCH], of_rest)
    for i in range(in_batches, len(z)):
        model_margins(x, z[i : i + 1], margins[i : i + 1], of_rest)
    return margins


@kernel
def sum_outer_products(r, z):  # type: ignore[no-untyped-def]
    """Return the sum of r_i z_i^T, shape (K, F), over the rows of two arrays of shapes (n, K) and (n, F)."""
    total = np.zeros((r.shape[1], z.shape[1]))
    in_batches = len(z) // BATCH * BATCH
    for i in range(0, in_batches, BATCH):
        for first in range(0, z.shape[1], TILE):
            stop = min(first + TILE, z.shape[1])
            z0, z1 = z[i, first:stop], z[i + 1, first:stop]
            z2, z3 = z[i + 2, first:stop], z[i + 3, first:stop]
            for k in range(r.shape[1]):
                row, r0, r1, r2, r3 = total[k, first:stop], r[i, k], r[i + 1, k], r[i + 2, k], r[i + 3, k]
                for j in range(row.size):
                    row[j] += (r0 * z0[j] + r1 * z1[j]) + (r2 * z2[j] + r3 * z3[j])
    for i in range(in_batches, len(z)):
        for k in range(r.shape[1]):
            row = total[k]
            for j in range(row.size):
                row[j] += r[i, k] * z[i, j]
    return total


def sum_losses(x, features, labels, scales, bias):  # type: ignore[no-untyped-def]
    """Return the summed loss of samples as stored, with factors that scale them, and how many are right."""
    classes, width = x.shape
    z, margins = empty_batch(BATCH, width), np.empty((BATCH, classes))
    of_rest = np.empty((BATCH, (classes + 1) // 2))
    total, correct = 0.0, 0
    for start in range(0, labels.size, BATCH):
        count = min(BATCH, labels.size - start)
        for i in range(count):
            load_sample(features[start + i], scales[start + i], bias, z[i])
        model_margins(x, z, margins, of_rest)
        for i in range(count):
            value, is_right = loss(margins[i], labels[start + i])
            total += value
            correct += is_right
    return total, correct
