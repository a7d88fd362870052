"""Least-squares linear regression, and ridge regression with ``--l2``."""

import math

from mu2mpi.core.kernels import inline
from mu2mpi.core.registry import register
from mu2mpi.losses.loss import Loss, LossConstants, PracticalDefaults


@inline
def _residual(margins, label):  # type: ignore[no-untyped-def]
    margins[0] -= label


@inline
def _loss(margins, label):  # type: ignore[no-untyped-def]
    """Return half the squared residual, and the squared error of the margin clipped to [-1, 1]."""
    error = margins[0] - label
    prediction_error = min(1.0, max(-1.0, margins[0])) - label
    return 0.5 * error * error, prediction_error * prediction_error


@register
class SquaredLoss(Loss):
    """Squared loss (x z - y)^2 / 2 of model x on sample z with a label y in [-1, 1]."""

    name, label_kind = "squared", "numbers"
    margin_meaning = "the prediction"
    residual_kernel, loss_kernel = staticmethod(_residual), staticmethod(_loss)
    practical_defaults = PracticalDefaults(clip_norm=0.15, margin_noise_std=0.25)

    def constants(self, max_squared_norm: float, radius: float, classes: int) -> LossConstants:
        """Return the Lipschitz constants G = (R ||z|| + 1) ||z|| and L = ||z||^2 in a ball of radius R."""
        norm = math.sqrt(max_squared_norm)
        return LossConstants((radius * norm + 1) * norm, max_squared_norm)
