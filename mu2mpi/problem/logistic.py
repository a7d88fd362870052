"""Softmax (K-class logistic) regression: gradients in rank-one form, loss and accuracy.

A sample is a row of features z, scaled into [-1, 1], with a constant 1 appended for the bias: F in all.
The model x has one row of F weights for each of K classes. The gradient of the loss at x is the outer
product r z^T of the residual r = softmax(x z) - onehot(label) and the sample, so nothing of size K F
is ever formed for a gradient.
"""

import math

import numpy as np

from mu2mpi.compiled import inline, kernel, reduction

__all__ = ["gradient_bound", "load_sample", "residual", "smoothness", "sum_losses", "two_logits"]


def gradient_bound(features: int) -> float:
    """Return G = sqrt(2 F), the largest norm of a gradient: ||r|| <= sqrt 2 and ||z|| <= sqrt F."""
    return math.sqrt(2 * features)


def smoothness(features: int) -> float:
    """Return L = F / 2: the softmax has Lipschitz constant 1/2 and ||z||^2 <= F."""
    return features / 2


@inline
def load_sample(row, scale, z):  # type: ignore[no-untyped-def]
    """Fill `z` with a stored row of features, scaled, and the bias feature 1."""
    for j in range(row.size):
        z[j] = scale * np.float64(row[j])
    z[row.size] = 1.0


@reduction
def two_logits(x, y, z, at_x, at_y):  # type: ignore[no-untyped-def]
    """Compute the logits x z and y z of one sample in one pass over it."""
    for k in range(x.shape[0]):
        a = 0.0
        b = 0.0
        for j in range(z.size):
            a += x[k, j] * z[j]
            b += y[k, j] * z[j]
        at_x[k] = a
        at_y[k] = b


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


@reduction
def _four_logits(x, z, logits):  # type: ignore[no-untyped-def]
    """Compute the logits of four samples, which share each read of x."""
    for k in range(x.shape[0]):
        a = 0.0
        b = 0.0
        c = 0.0
        d = 0.0
        for j in range(x.shape[1]):
            a += x[k, j] * z[0, j]
            b += x[k, j] * z[1, j]
            c += x[k, j] * z[2, j]
            d += x[k, j] * z[3, j]
        logits[0, k] = a
        logits[1, k] = b
        logits[2, k] = c
        logits[3, k] = d


@kernel
def sum_losses(x, features, labels, scale):  # type: ignore[no-untyped-def]
    """Return the summed loss and the number of correctly classified samples.

    Parameters
    ----------
    x : ndarray of float64, shape (K, F)
        The model.
    features : ndarray, shape (n, F - 1)
        Samples as stored.
    labels : ndarray of int32, shape (n,)
        Their classes.
    scale : float
        Factor that takes stored features into [-1, 1].

    Returns
    -------
    tuple of float and int
        Sum of losses in nats, and number of samples whose largest logit (the first, on ties) is that
        of their label.
    """
    z = np.zeros((4, x.shape[1]))
    logits = np.empty((4, x.shape[0]))
    loss = 0.0
    correct = 0
    for start in range(0, labels.size, 4):
        count = min(4, labels.size - start)
        for i in range(count):
            load_sample(features[start + i], scale, z[i])
        _four_logits(x, z, logits)
        for i in range(count):
            value, best = _loss_and_class(logits[i], labels[start + i])
            loss += value
            correct += best == labels[start + i]
    return loss, correct
