"""Huber loss: linear regression that is robust to outliers."""

import math

from mu2mpi.core.kernels import inline
from mu2mpi.core.registry import register
from mu2mpi.losses.loss import Loss, LossConstants, PracticalDefaults

HUBER_THRESHOLD = 0.25  # absolute error h beyond which the loss is linear; labels are in [-1, 1]


@inline
def _residual(margins, label):  # type: ignore[no-untyped-def]
    margins[0] = min(HUBER_THRESHOLD, max(-HUBER_THRESHOLD, margins[0] - label))


@inline
def _loss(margins, label):  # type: ignore[no-untyped-def]
    """Return the Huber loss of a sample, and the squared error of its prediction clipped to [-1, 1]."""
    error, h = abs(margins[0] - label), HUBER_THRESHOLD
    prediction_error = min(1.0, max(-1.0, margins[0])) - label
    huber_loss = 0.5 * error * error if error <= h else h * (error - 0.5 * h)
    return huber_loss, prediction_error * prediction_error


@register
class HuberLoss(Loss):
    """Huber loss (1964) of a prediction of a label in [-1, 1]: linear in absolute errors beyond 1/4."""

    name, label_kind = "huber", "numbers"
    margin_meaning = "the prediction"
    residual_kernel, loss_kernel = staticmethod(_residual), staticmethod(_loss)
    practical_defaults = PracticalDefaults(clip_norm=0.8, margin_noise_std=0.25)

    def constants(self, max_squared_norm: float, radius: float, classes: int) -> LossConstants:
        """Return the Lipschitz constant G = ||z|| / 4 and the smoothness L = ||z||^2 for samples z."""
        L, h = max_squared_norm, HUBER_THRESHOLD
        G, loss_at_zero = h * math.sqrt(max_squared_norm), h * (1 - h / 2)
        return LossConstants(G, L, 2.0, curvature=L, residual_vertices=2, loss_at_zero=loss_at_zero)
