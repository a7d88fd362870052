"""Softmax (multinomial logistic) regression."""

import math

import numpy as np

from mu2mpi.core.kernels import inline
from mu2mpi.core.registry import register
from mu2mpi.losses.loss import Array, Labels, Loss, LossConstants, PracticalDefaults
from mu2mpi.losses.model.linear import all_margins, sum_outer_products


@inline
def _residual(margins, label):  # type: ignore[no-untyped-def]
    """Replace the margins by softmax(margins) - onehot(label)."""
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
    """Return -log softmax(margins)[label], and whether that margin is the largest (the first one on ties)."""
    best = 0
    for k in range(1, margins.size):
        if margins[k] > margins[best]:
            best = k
    total = 0.0
    for k in range(margins.size):
        total += np.exp(margins[k] - margins[best])
    return np.log(total) + margins[best] - margins[label], best == label


@register
class Softmax(Loss):
    """Cross-entropy loss -log softmax(x z)[label] of K classes."""

    name, unit = "softmax", "nat"
    margin_meaning = "the log-probability, up to a term common to all classes,"
    residual_kernel, loss_kernel = staticmethod(_residual), staticmethod(_loss)
    practical_defaults = PracticalDefaults(clip_norm=0.75)

    def constants(self, max_squared_norm: float, radius: float, classes: int) -> LossConstants:
        """Return G = sqrt(2) ||z||, as ||r|| <= sqrt(2), and L = ||z||^2 / 2, as softmax is 1/2-Lipschitz."""
        return LossConstants(math.sqrt(2 * max_squared_norm), max_squared_norm / 2, 2 * classes + 22.0)

    def scores(self, margins: Array) -> Array:
        _, exponentials, sums = _exponentials(margins)
        return exponentials / sums

    def loss_and_gradient(self, x: Array, z: Array, labels: Labels) -> tuple[float, Array]:
        margins, residuals, sums = _exponentials(all_margins(x, z))
        label_entries = np.arange(len(labels)), labels
        residuals /= sums
        residuals[label_entries] -= 1.0
        return float(np.sum(np.log(sums[:, 0]) - margins[label_entries])), sum_outer_products(residuals, z)

    def expected_loss_and_gradient(
        self, x: Array, z: Array, weights: Array, label_values: Labels
    ) -> tuple[float, Array]:
        margins, residuals, sums = _exponentials(all_margins(x, z))
        loss = float(np.sum((np.log(sums) - margins) * weights))
        residuals *= weights.sum(axis=1, keepdims=True) / sums
        residuals -= weights
        return loss, sum_outer_products(residuals, z)


def _exponentials(margins: Array) -> tuple[Array, Array, Array]:
    """Return margins less their maximum, their exponentials, and the sums of these, shape (n, 1)."""
    shifted: Array = margins - margins.max(axis=1, keepdims=True)
    exponentials = np.exp(shifted)
    return shifted, exponentials, exponentials.sum(axis=1, keepdims=True)
