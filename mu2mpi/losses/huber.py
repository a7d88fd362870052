"""Huber loss: linear regression that is robust to outliers."""

import math

from mu2mpi.core.kernels import inline
from mu2mpi.core.registry import register
from mu2mpi.losses.loss import Loss, LossConstants, PracticalDefaults

_THRESHOLD = 0.25  # h: the loss is linear in larger errors; the declared label range [-1, 1] has length 2


@inline
def _residual(margins, label):  # type: ignore[no-untyped-def]
    margins[0] = min(_THRESHOLD, max(-_THRESHOLD, margins[0] - label))


@inline
def _loss(margins, label):  # type: ignore[no-untyped-def]
    """Return e^2 / 2 if |e| <= h and h (|e| - h / 2) beyond, and the squared error of the prediction."""
    error = abs(margins[0] - label)
    prediction_error = min(1.0, max(-1.0, margins[0])) - label
    value = 0.5 * error * error if error <= _THRESHOLD else _THRESHOLD * (error - 0.5 * _THRESHOLD)
    return value, prediction_error * prediction_error


@register
class Huber(Loss):
    """Half the squared error of a number in [-1, 1], linear in errors beyond 1/4 (Huber, 1964)."""

    name, label_kind = "huber", "numbers"
    margin_meaning = "the prediction"
    residual_kernel, loss_kernel = staticmethod(_residual), staticmethod(_loss)
    practical_defaults = PracticalDefaults(clip_norm=0.8, noise_std=0.25)

    def constants(self, max_squared_norm: float, radius: float, classes: int) -> LossConstants:
        """Return G = h ||z||, as |r| <= h, and L = ||z||^2."""
        return LossConstants(_THRESHOLD * math.sqrt(max_squared_norm), max_squared_norm, 2.0)
