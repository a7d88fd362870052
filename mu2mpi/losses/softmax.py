"""Softmax (K-class logistic) regression."""

import math

import numpy as np

from mu2mpi.core.kernels import inline
from mu2mpi.core.registry import register
from mu2mpi.losses.loss import Array, Constants, Labels, Practical, Problem
from mu2mpi.losses.model.linear import all_margins, sum_outer_products


@inline
def _residual(margins, label):  # type: ignore[no-untyped-def]
    """Turn margins in place into softmax(margins) - onehot(label)."""
    largest = margins[0]
    for k in range(1, margins.size):
        largest = max(largest, margins[k])
    total = 0.0
    for k in range(margins.size):
        margins[k] = np.exp(margins[k] - largest)
        total += margins[k]
    for k in range(margins.size):
        margins[k] /= total
    margins[label] -= 1.0


@inline
def _loss(margins, label):  # type: ignore[no-untyped-def]
    """Return -log softmax(margins)[label], and whether the label's margin is the largest (first, on ties)."""
    best = 0
    for k in range(1, margins.size):
        if margins[k] > margins[best]:
            best = k
    total = 0.0
    for k in range(margins.size):
        total += np.exp(margins[k] - margins[best])
    return np.log(total) + margins[best] - margins[label], best == label


@register
class Softmax(Problem):
    """The logistic loss -log softmax(x z)[label], in nats."""

    name, unit = "softmax", "nat"
    margin = "the log-probability, up to what all classes share,"
    residual, loss = staticmethod(_residual), staticmethod(_loss)
    practical = Practical(clip=0.75)

    def constants(self, square: float, radius: float, classes: int) -> Constants:
        """Return G = sqrt(2 ||z||^2), as ||r|| <= sqrt 2, and L = ||z||^2 / 2: softmax is 1/2-Lipschitz."""
        return Constants(math.sqrt(2 * square), square / 2, 2 * classes + 22.0)

    def scores(self, margins: Array) -> Array:
        _, exponentials, sums = _exponentials(margins)
        return exponentials / sums

    def loss_and_gradient(self, x: Array, z: Array, labels: Labels) -> tuple[float, Array]:
        margins, residuals, sums = _exponentials(all_margins(x, z))
        right = np.arange(len(labels)), labels
        residuals /= sums
        residuals[right] -= 1.0
        return float(np.sum(np.log(sums[:, 0]) - margins[right])), sum_outer_products(residuals, z)

    def expected(self, x: Array, z: Array, weights: Array, values: Labels) -> tuple[float, Array]:
        margins, residuals, sums = _exponentials(all_margins(x, z))
        loss = float(np.sum((np.log(sums) - margins) * weights))
        residuals *= weights.sum(axis=1, keepdims=True) / sums
        residuals -= weights
        return loss, sum_outer_products(residuals, z)


def _exponentials(margins: Array) -> tuple[Array, Array, Array]:
    """Return margins below 0, their exponentials, and the sums of these, shapes (n, K), (n, K) and (n, 1)."""
    below: Array = margins - margins.max(axis=1, keepdims=True)
    exponentials = np.exp(below)
    return below, exponentials, exponentials.sum(axis=1, keepdims=True)
