"""Poisson regression of counts up to a declared maximum, with a log link."""

import math

import numpy as np

from mu2mpi.core.arrays import FloatArray
from mu2mpi.core.errors import InputError
from mu2mpi.core.kernels import inline
from mu2mpi.core.registry import register
from mu2mpi.losses.loss import Loss, LossConstants, PracticalDefaults


@inline
def _residual(margins, label):  # type: ignore[no-untyped-def]
    """Replace the margin m of a sample with label y, in place, by its residual exp(m) - (1 + y)."""
    margins[0] = np.exp(margins[0]) - (1.0 + label)


@inline
def _loss(margins, label):  # type: ignore[no-untyped-def]
    """Return the Poisson loss of a sample, and the squared error of its prediction capped at the maximum."""
    mean = np.exp(margins[0])
    error = min(2.0, mean) - (1.0 + label)
    return mean - (1.0 + label) * margins[0], error * error


@register
class PoissonLoss(Loss):
    """Poisson loss exp(m) - (1 + y) m of a count 1 + y and its mean exp(m), in units of half the maximum."""

    name, label_kind, unit = "poisson", "numbers", "nat"
    margin_meaning = "the logarithm of the mean"
    residual_kernel, loss_kernel = staticmethod(_residual), staticmethod(_loss)
    practical_defaults = PracticalDefaults(clip_norm=0.25, margin_noise_std=2.0, max_margin=20.0)

    def constants(self, max_squared_norm: float, radius: float, classes: int) -> LossConstants:
        """Return the Lipschitz constants G = ||z|| exp(R ||z||) and L = ||z|| G in a ball of radius R."""
        norm = math.sqrt(max_squared_norm)
        if radius * norm > 300:
            raise InputError(f"--loss poisson overflows with --diameter {2 * radius:g}. Use a smaller one.")
        max_mean = math.exp(radius * norm)
        return LossConstants(norm * max_mean, max_squared_norm * max_mean)

    def margin_to_label_units(self, label_low: float, label_high: float) -> tuple[float, float]:
        """Return factor 1 and offset log(label_high / 2), from a margin to the log of the mean count."""
        return 1.0, math.log(label_high / 2)

    def check_label_range(self, low: float, high: float) -> None:
        if low != 0:
            raise InputError(f"--loss poisson needs counts from 0, got {low:g}. Use --loss squared.")

    def predict_numbers(self, margins: FloatArray) -> FloatArray:
        return super().predict_numbers(np.exp(margins) - 1)
