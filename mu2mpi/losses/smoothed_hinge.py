"""Linear support vector machine with a smoothed hinge loss."""

import math

from mu2mpi.core.kernels import inline
from mu2mpi.core.registry import register
from mu2mpi.losses.loss import Loss, LossConstants, PracticalDefaults


@inline
def _side(k, rows, label):  # type: ignore[no-untyped-def]
    """Return 1 for the row of the label's class, else -1; a single row is that of the second class."""
    if rows == 1:
        return 1.0 if label == 1 else -1.0
    return 1.0 if k == label else -1.0


@inline
def _residual(margins, label):  # type: ignore[no-untyped-def]
    """Replace each margin m by -s min(1, max(0, 1 - s m)), where s is its `_side`."""
    for k in range(margins.size):
        side = _side(k, margins.size, label)
        margins[k] = -side * min(1.0, max(0.0, 1.0 - side * margins[k]))


@inline
def _loss(margins, label):  # type: ignore[no-untyped-def]
    """Return the sum of phi(s m), and whether the label's margin is the largest (the first one on ties)."""
    total, best = 0.0, 0
    for k in range(margins.size):
        shortfall = max(0.0, 1.0 - _side(k, margins.size, label) * margins[k])
        total += 0.5 * shortfall * shortfall if shortfall <= 1.0 else shortfall - 0.5
        if margins[k] > margins[best]:
            best = k
    if margins.size == 1:
        best = 1 if margins[0] > 0.0 else 0
    return total, best == label


@register
class SmoothedHinge(Loss):
    """Sum over rows of phi(+-m): phi(u) = 0 for u >= 1, (1 - u)^2 / 2 in [0, 1], and 1/2 - u below.

    Shalev-Shwartz and Zhang, "Stochastic dual coordinate ascent methods", 2013.
    """

    name = "smoothed-hinge"
    residual_kernel, loss_kernel = staticmethod(_residual), staticmethod(_loss)
    practical_defaults = PracticalDefaults(clip_norm=0.7, noise_std=1.0)

    def model_rows(self, classes: int) -> int:
        """Return one row for two classes, or one per class."""
        return 1 if classes == 2 else classes

    def constants(self, max_squared_norm: float, radius: float, classes: int) -> LossConstants:
        """Return G = sqrt(rows ||z||^2), as |phi'| <= 1, and L = ||z||^2, as 0 <= phi'' <= 1."""
        return LossConstants(math.sqrt(self.model_rows(classes) * max_squared_norm), max_squared_norm, 2.0)
