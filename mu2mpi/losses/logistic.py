"""Binary logistic regression."""

import math

import numpy as np

from mu2mpi.core.arrays import FloatArray
from mu2mpi.core.errors import InputError
from mu2mpi.core.kernels import inline
from mu2mpi.core.registry import register
from mu2mpi.losses.loss import Loss, LossConstants, PracticalDefaults


@inline
def _residual(margins, label):  # type: ignore[no-untyped-def]
    """Replace the margin m of a sample, in place, by its residual sigmoid(m) - label, without overflow."""
    exponential = np.exp(-abs(margins[0]))
    margins[0] = (1.0 if margins[0] >= 0.0 else exponential) / (1.0 + exponential) - label


@inline
def _loss(margins, label):  # type: ignore[no-untyped-def]
    """Return the logistic loss of a sample in nats, and whether its class (0 or 1) is predicted correctly."""
    u = margins[0] if label == 1 else -margins[0]
    return np.log1p(np.exp(-abs(u))) + max(0.0, -u), (margins[0] > 0.0) == (label == 1)


@register
class LogisticLoss(Loss):
    """Logistic loss log(1 + exp(-u)) of model x on sample z: u = x z for class 1, -x z for class 0."""

    name, unit = "logistic", "nat"
    margin_meaning = "the log-odds"
    residual_kernel, loss_kernel = staticmethod(_residual), staticmethod(_loss)
    practical_defaults = PracticalDefaults(clip_norm=0.6, margin_noise_std=4.0)

    def model_rows(self, classes: int) -> int:
        if classes != 2:
            raise InputError(f"--loss {self.name} needs 2 classes, got {classes}. Use --loss softmax.")
        return 1

    def constants(self, max_squared_norm: float, radius: float, classes: int) -> LossConstants:
        """Return the Lipschitz constant G = ||z|| and the smoothness L = ||z||^2 / 4 for samples z."""
        G, L = math.sqrt(max_squared_norm), max_squared_norm / 4
        return LossConstants(G, L, 6.0, curvature=L, residual_vertices=1, loss_at_zero=math.log(2))

    def class_scores(self, margins: FloatArray) -> FloatArray:
        exponentials, is_positive = np.exp(-np.abs(margins[:, 0])), margins[:, 0] >= 0
        second_class = np.where(is_positive, 1.0, exponentials) / (1 + exponentials)
        first_class = np.where(is_positive, exponentials, 1.0) / (1 + exponentials)
        return np.column_stack([first_class, second_class])
