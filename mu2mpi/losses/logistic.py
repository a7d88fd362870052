"""Binary logistic regression."""

import math

import numpy as np

from mu2mpi.core.errors import InputError
from mu2mpi.core.kernels import inline
from mu2mpi.core.registry import register
from mu2mpi.losses.loss import Array, Loss, LossConstants, PracticalDefaults


@inline
def _residual(margins, label):  # type: ignore[no-untyped-def]
    """Replace the margin m by sigmoid(m) - label, without overflow."""
    small = np.exp(-abs(margins[0]))
    probability = (1.0 if margins[0] >= 0.0 else small) / (1.0 + small)
    margins[0] = probability - label


@inline
def _loss(margins, label):  # type: ignore[no-untyped-def]
    """Return log(1 + exp(-u)), and whether u > 0, where u = m for the second class and -m for the first."""
    u = margins[0] if label == 1 else -margins[0]
    return np.log1p(np.exp(-abs(u))) + max(0.0, -u), (margins[0] > 0.0) == (label == 1)


@register
class Logistic(Loss):
    """Logistic loss log(1 + exp(-u)), where u = x z for the second class and -x z for the first."""

    name, unit = "logistic", "nat"
    margin_meaning = "the log-odds"
    residual_kernel, loss_kernel = staticmethod(_residual), staticmethod(_loss)
    practical_defaults = PracticalDefaults(clip_norm=0.6, noise_std=4.0)

    def model_rows(self, classes: int) -> int:
        if classes != 2:
            raise InputError(f"--loss {self.name} needs 2 classes, got {classes}. Use --loss softmax.")
        return 1

    def constants(self, max_squared_norm: float, radius: float, classes: int) -> LossConstants:
        """Return G = ||z||, as |r| <= 1, and L = ||z||^2 / 4, as the second derivative is p (1 - p)."""
        return LossConstants(math.sqrt(max_squared_norm), max_squared_norm / 4, 6.0)

    def scores(self, margins: Array) -> Array:
        small = np.exp(-np.abs(margins[:, 0]))
        second = np.where(margins[:, 0] >= 0, 1.0, small) / (1 + small)
        first = np.where(margins[:, 0] >= 0, small, 1.0) / (1 + small)
        return np.column_stack([first, second])
