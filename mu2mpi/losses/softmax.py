"""Softmax (multinomial logistic) regression."""

import math

import numpy as np

from mu2mpi.core.arrays import FloatArray
from mu2mpi.core.kernels import inline
from mu2mpi.core.registry import register
from mu2mpi.losses.loss import Labels, Loss, LossConstants, PracticalDefaults
from mu2mpi.losses.model.linear import all_margins, sum_outer_products


@inline
def _residual(margins, label):  # type: ignore[no-untyped-def]
    """Replace the margins of a sample, in place, by its residual softmax(margins) - onehot(label)."""
    largest = margins[0]
    for k in range(1, margins.size):
        largest = max(largest, margins[k])
    exponential_sum = 0.0
    for k in range(margins.size):
        margins[k] = np.exp(margins[k] - largest)
        exponential_sum += margins[k]
    for k in range(margins.size):
        margins[k] /= exponential_sum
    margins[label] -= 1.0


@inline
def _loss(margins, label):  # type: ignore[no-untyped-def]
    """Return the cross-entropy loss of a sample, and whether its class is predicted (ties: the first)."""
    predicted, exponential_sum = 0, 0.0
    for k in range(1, margins.size):
        if margins[k] > margins[predicted]:
            predicted = k
    for k in range(margins.size):
        exponential_sum += np.exp(margins[k] - margins[predicted])
    return np.log(exponential_sum) + margins[predicted] - margins[label], predicted == label


@register
class SoftmaxLoss(Loss):
    """Cross-entropy loss -log softmax(x z)[label] of model x, shape (K, F), on a sample z of K classes."""

    name, unit = "softmax", "nat"
    margin_meaning = "the log-probability, up to a term common to all classes,"
    residual_kernel, loss_kernel = staticmethod(_residual), staticmethod(_loss)
    practical_defaults = PracticalDefaults(clip_norm=0.75)

    def constants(self, max_squared_norm: float, radius: float, classes: int) -> LossConstants:
        """Return the Lipschitz constant G = sqrt(2) ||z|| and smoothness L = ||z||^2 / 2 for samples z."""
        G, L, K = math.sqrt(2 * max_squared_norm), max_squared_norm / 2, classes
        # Residuals softmax(m) - e_y are mixtures of 0 and the vertices e_k - e_y, k != y.
        curvature, roundoffs = max_squared_norm * (1 - 1 / K), 2 * K + 22.0
        return LossConstants(
            G, L, roundoffs, curvature=curvature, residual_vertices=K - 1, loss_at_zero=math.log(K)
        )

    def curvature_at_zero(self, classes: int) -> float:
        """Return 1 / K, the curvature at 0 in directions that sum to 0, of residuals."""
        return 1 / classes

    def class_scores(self, margins: FloatArray) -> FloatArray:
        _, exponentials, sums = _exponentials(margins)
        return exponentials / sums

    def expected_loss_and_gradient(
        self, x: FloatArray, z: FloatArray, weights: FloatArray, label_values: Labels
    ) -> tuple[float, FloatArray]:
        margins, residuals, sums = _exponentials(all_margins(x, z))
        loss_sum = float(np.sum((np.log(sums) - margins) * weights))
        residuals *= weights.sum(axis=1, keepdims=True) / sums
        residuals -= weights
        return loss_sum, sum_outer_products(residuals, z)


def _exponentials(margins: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the margins minus each sample's largest, shape (n, K), their exponentials, and sums (n, 1)."""
    shifted: FloatArray = margins - margins.max(axis=1, keepdims=True)
    exponentials = np.exp(shifted)
    return shifted, exponentials, exponentials.sum(axis=1, keepdims=True)
