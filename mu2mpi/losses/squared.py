"""Least squares: linear regression, or with --l2 ridge regression."""

import math

from mu2mpi.core.kernels import inline
from mu2mpi.core.registry import register
from mu2mpi.losses.loss import Constants, Practical, Problem


@inline
def _residual(margins, label):  # type: ignore[no-untyped-def]
    margins[0] -= label


@inline
def _loss(margins, label):  # type: ignore[no-untyped-def]
    """Return (m - y)^2 / 2, and the squared error of the prediction, which is m clipped to [-1, 1]."""
    error = margins[0] - label
    clipped = min(1.0, max(-1.0, margins[0])) - label
    return 0.5 * error * error, clipped * clipped


@register
class Squared(Problem):
    """Half the squared error (x z - y)^2 / 2 of a number y, of which the declared range is [-1, 1]."""

    name, labels = "squared", "numbers"
    margin = "the prediction"
    residual, loss = staticmethod(_residual), staticmethod(_loss)
    practical = Practical(clip=0.15, noise=0.25)

    def constants(self, square: float, radius: float, classes: int) -> Constants:
        """Return G = (R ||z|| + 1) ||z||, as no |x z| passes R ||z|| on the ball, and L = ||z||^2."""
        length = math.sqrt(square)
        return Constants((radius * length + 1) * length, square, 2.0)
