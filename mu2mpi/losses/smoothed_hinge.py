"""Linear support vector machine with a smoothed hinge loss."""

import math

from mu2mpi.core.kernels import inline
from mu2mpi.core.registry import register
from mu2mpi.losses.loss import Loss, LossConstants, PracticalDefaults


@inline
def _class_sign(k, rows, label):  # type: ignore[no-untyped-def]
    """Return the sign of row k of the model for a label: 1 in the row of its class, else -1."""
    if rows == 1:
        return 1.0 if label == 1 else -1.0  # the only row is that of the second class
    return 1.0 if k == label else -1.0


@inline
def _residual(margins, label):  # type: ignore[no-untyped-def]
    """Replace each margin m of a sample, in place, by its residual -s min(1, max(0, 1 - s m)) with sign s."""
    for k in range(margins.size):
        sign = _class_sign(k, margins.size, label)
        margins[k] = -sign * min(1.0, max(0.0, 1.0 - sign * margins[k]))


@inline
def _loss(margins, label):  # type: ignore[no-untyped-def]
    """Return the smoothed hinge loss of a sample, and whether its class is predicted (ties: the first)."""
    sample_loss, predicted = 0.0, 0
    for k in range(margins.size):
        shortfall = max(0.0, 1.0 - _class_sign(k, margins.size, label) * margins[k])
        sample_loss += 0.5 * shortfall * shortfall if shortfall <= 1.0 else shortfall - 0.5
        if margins[k] > margins[predicted]:
            predicted = k
    if margins.size == 1:
        predicted = 1 if margins[0] > 0.0 else 0
    return sample_loss, predicted == label


@register
class SmoothedHingeLoss(Loss):
    """Smoothed hinge: sum over margins of phi(+-m): (1 - u)^2 / 2 in [0, 1], 0 above, 1/2 - u below."""

    # Shalev-Shwartz and Zhang, "Stochastic dual coordinate ascent methods", 2013.
    name = "smoothed-hinge"
    residual_kernel, loss_kernel = staticmethod(_residual), staticmethod(_loss)
    practical_defaults = PracticalDefaults(clip_norm=0.7, margin_noise_std=1.0)

    def model_rows(self, classes: int) -> int:
        return 1 if classes == 2 else classes

    def constants(self, max_squared_norm: float, radius: float, classes: int) -> LossConstants:
        """Return the Lipschitz constant G = sqrt(rows) ||z|| and the smoothness L = ||z||^2."""
        L, rows = max_squared_norm, self.model_rows(classes)
        G, V = math.sqrt(rows * L), int(rows == 1)
        return LossConstants(G, L, 2.0, curvature=rows * L, residual_vertices=V, loss_at_zero=rows / 2)
