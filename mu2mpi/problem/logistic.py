"""Softmax (K-class logistic) regression: gradients in rank-one form, loss and accuracy.

A sample is a row of features z, scaled into [-1, 1], with a constant 1 appended for the bias: F in all.
Or each sample is scaled to norm 1, the bias feature `UNIT_BIAS` included.
The model x has one row of F weights for each of K classes. The gradient of the loss at x is the outer
product r z^T of the residual r = softmax(x z) - onehot(label) and the sample, so nothing of size K F
is ever formed for a gradient.
"""

import math

import numpy as np
from numpy.typing import NDArray

from mu2mpi.kernels import inline, kernel, reduction, scratch

__all__ = [
    "BATCH",
    "TILE",
    "UNIT_BIAS",
    "batch_logits",
    "bias_feature",
    "empty_batch",
    "gradient_bound",
    "gradient_constants",
    "load_sample",
    "model_logits",
    "residual",
    "sample_scales",
    "smoothness",
    "sum_losses",
    "two_logits",
]


def gradient_bound(squared: float) -> float:
    """Return G = sqrt(2 ||z||^2) from the largest ||z||^2: a gradient is r z^T, and ||r|| <= sqrt 2.

    For features in [-1, 1] that is F; for samples of norm 1 it is 1.
    """
    return math.sqrt(2 * squared)


def smoothness(squared: float) -> float:
    """Return L = ||z||^2 / 2 from the largest ||z||^2: the softmax has Lipschitz constant 1/2."""
    return squared / 2


def gradient_constants(features: int, unit_norm: bool) -> tuple[float, float]:
    """Return G and L for samples of norm 1, or else of so many features in [-1, 1]."""
    squared = 1 if unit_norm else features
    return gradient_bound(squared), smoothness(squared)


UNIT_BIAS = 0.1
"""The bias feature of a sample that is scaled to norm 1. The others have norm sqrt(1 - UNIT_BIAS^2)."""

VALUES = 1 << 17
"""Features of samples whose norms are taken together: as many as stay in a processor's cache."""

LEAST_SQUARE = 2.0**-900
"""Beside it, squares too small for floating-point numbers do not count."""


def bias_feature(unit: bool) -> float:
    """Return the bias feature of all samples, scaled to norm 1 or not."""
    return UNIT_BIAS if unit else 1.0


def sample_scales(features: NDArray[np.generic], scale: float, unit: bool) -> NDArray[np.float64]:
    """Return the factor that takes the stored features of each sample to those of z.

    Parameters
    ----------
    features : ndarray, shape (n, F - 1)
        Samples as stored.
    scale : float
        Factor that takes stored features into [-1, 1]; for norm 1 it makes no difference.
    unit : bool
        Whether each sample is scaled to norm 1, by its own norm alone. One whose features are all 0 keeps
        them. So does, as if they were 0, one whose squared norm is below `LEAST_SQUARE` or no finite number.

    Returns
    -------
    ndarray of float64, shape (n,)
        For norm 1 they make no z longer than 1 + (F + 8) 2^-53.
    """
    if not unit:
        return np.full(len(features), scale)
    scales = np.zeros(len(features))
    step = max(1, VALUES // features.shape[1])
    for start in range(0, len(features), step):
        part = features[start : start + step].astype(np.float64)
        squares = np.einsum("ij,ij->i", part, part)
        usable = (squares >= LEAST_SQUARE) & (squares < np.inf)
        of_part = scales[start : start + step]
        of_part[usable] = math.sqrt(1 - UNIT_BIAS**2) / np.sqrt(squares[usable])
    return scales


BATCH = 4
"""Samples whose inner products with the model are computed together, sharing each read of it."""

TILE = 400
"""Features for which a batch of samples and two rows of models fit into the fastest cache."""


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
def two_logits(x, y, z, at_x, at_y):  # type: ignore[no-untyped-def]
    """Compute the logits x z and y z of one sample.

    Parameters
    ----------
    x, y : ndarray of float64, shape (K, F)
        Two models.
    z : ndarray of float64, shape (F,)
        The sample.
    at_x, at_y : ndarray of float64, shape (K,)
        Overwritten with the logits.
    """
    for k in range(x.shape[0]):
        at_x[k], at_y[k] = _two_products(x[k], y[k], z)


@inline
def batch_logits(x, y, z, at_x, at_y):  # type: ignore[no-untyped-def]
    """Compute the logits x z and y z of a batch of samples.

    Parameters
    ----------
    x, y : ndarray of float64, shape (K, F)
        Two models, or two parts of one.
    z : ndarray of float64, shape (BATCH, >= F)
        The samples.
    at_x, at_y : ndarray of float64, shape (BATCH, >= K)
        Overwritten with the logits.
    """
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
def model_logits(x, z, logits, of_rest):  # type: ignore[no-untyped-def]
    """Compute the logits x z of one sample or of a batch.

    The model is taken in two halves, which share each sample; if classes are odd in number they share one.

    Parameters
    ----------
    x : ndarray of float64, shape (K, F)
        The model.
    z : ndarray of float64, shape (1 or BATCH, >= F)
        The samples.
    logits : ndarray of float64, shape (1 or BATCH, K)
        Overwritten with the logits.
    of_rest : ndarray of float64, shape (1 or BATCH, (K + 1) // 2)
        Overwritten.
    """
    half, rest = (x.shape[0] + 1) // 2, x.shape[0] // 2
    if z.shape[0] == 1:
        two_logits(x[:half], x[rest:], z[0, : x.shape[1]], logits[0], of_rest[0])
    else:
        batch_logits(x[:half], x[rest:], z, logits, of_rest)
    for i in range(z.shape[0]):
        for k in range(half):
            logits[i, rest + k] = of_rest[i, k]


@inline
def residual(logits, label):  # type: ignore[no-untyped-def]
    """Turn logits in place into softmax(logits) - onehot(label)."""
    largest = logits[0]
    for k in range(1, logits.size):
        largest = max(largest, logits[k])
    total = 0.0
    for k in range(logits.size):
        logits[k] = np.exp(logits[k] - largest)
        total += logits[k]
    for k in range(logits.size):
        logits[k] /= total
    logits[label] -= 1.0


@inline
def _loss_and_class(logits, label):  # type: ignore[no-untyped-def]
    """Return -log softmax(logits)[label] and the class with the largest logit (the first, on ties)."""
    best = 0
    for k in range(1, logits.size):
        if logits[k] > logits[best]:
            best = k
    total = 0.0
    for k in range(logits.size):
        total += np.exp(logits[k] - logits[best])
    return np.log(total) + logits[best] - logits[label], best


@kernel
def sum_losses(x, features, labels, scales, bias):  # type: ignore[no-untyped-def]
    """Return the summed loss and the number of correctly classified samples.

    Parameters
    ----------
    x : ndarray of float64, shape (K, F)
        The model.
    features : ndarray, shape (n, F - 1)
        Samples as stored.
    labels : ndarray of int32, shape (n,)
        Their classes.
    scales : ndarray of float64, shape (n,)
        Factors that take their stored features to those of z.
    bias : float
        The bias feature.

    Returns
    -------
    tuple of float and int
        Sum of losses in nats, and number of samples whose largest logit (the first, on ties) is that
        of their label.
    """
    classes, width = x.shape
    z, logits = empty_batch(BATCH, width), np.empty((BATCH, classes))
    of_rest = np.empty((BATCH, (classes + 1) // 2))
    loss = 0.0
    correct = 0
    for start in range(0, labels.size, BATCH):
        count = min(BATCH, labels.size - start)
        for i in range(count):
            load_sample(features[start + i], scales[start + i], bias, z[i])
        model_logits(x, z, logits, of_rest)
        for i in range(count):
            value, best = _loss_and_class(logits[i], labels[start + i])
            loss += value
            correct += best == labels[start + i]
    return loss, correct
