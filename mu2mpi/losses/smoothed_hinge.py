"""Linear support vector machines: the hinge loss with its corner rounded off."""

import math

from mu2mpi.core.kernels import inline
from mu2mpi.core.registry import register
from mu2mpi.losses.loss import Constants, Practical, Problem


@inline
def _side(k, rows, label):  # type: ignore[no-untyped-def]
    """Return 1 for the row of the label's class and -1 for others; one row speaks for the second class."""
    if rows == 1:
        return 1.0 if label == 1 else -1.0
    return 1.0 if k == label else -1.0


@inline
def _residual(margins, label):  # type: ignore[no-untyped-def]
    """Turn each margin m in place into -s min(1, max(0, 1 - s m)) with its side s."""
    for k in range(margins.size):
        side = _side(k, margins.size, label)
        margins[k] = -side * min(1.0, max(0.0, 1.0 - side * margins[k]))


@inline
def _loss(margins, label):  # type: ignore[no-untyped-def]
    """Return the sum of phi(s m), and whether the label's class is the best (the first one, on ties)."""
    total, best = 0.0, 0
    for k in range(margins.size):
        missing = max(0.0, 1.0 - _side(k, margins.size, label) * margins[k])
        total += 0.5 * missing * missing if missing <= 1.0 else missing - 0.5
        if margins[k] > margins[best]:
            best = k
    if margins.size == 1:
        best = 1 if margins[0] > 0.0 else 0
    return total, best == label


@register
class SmoothedHinge(Problem):
    """The sum of phi(+-m) over rows: 0 for u >= 1, (1 - u)^2 / 2 between 0 and 1, and 1/2 - u below.

    Shalev-Shwartz and Zhang, "Stochastic dual coordinate ascent methods", 2013.
    """

    name = "smoothed-hinge"
    residual, loss = staticmethod(_residual), staticmethod(_loss)
    practical = Practical(clip=0.7, noise=1.0)

    def rows(self, classes: int) -> int:
        return 1 if classes == 2 else classes

    def constants(self, square: float, radius: float, classes: int) -> Constants:
        """Return G = sqrt(rows ||z||^2), as |phi'| <= 1, and L = ||z||^2, as 0 <= phi'' <= 1."""
        return Constants(math.sqrt(self.rows(classes) * square), square, 2.0)
