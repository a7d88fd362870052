"""Poisson regression: counts up to a declared maximum, by the logarithm of their mean."""

import math

import numpy as np

from mu2mpi.core.errors import InputError
from mu2mpi.core.kernels import inline
from mu2mpi.core.registry import register
from mu2mpi.losses.loss import Array, Constants, Practical, Problem


@inline
def _residual(margins, label):  # type: ignore[no-untyped-def]
    margins[0] = np.exp(margins[0]) - (1.0 + label)


@inline
def _loss(margins, label):  # type: ignore[no-untyped-def]
    """Return exp(m) - (1 + y) m, and the squared error of the prediction, which is at most the maximum."""
    mean = np.exp(margins[0])
    error = min(2.0, mean) - (1.0 + label)
    return mean - (1.0 + label) * margins[0], error * error


@register
class Poisson(Problem):
    """The negative log-likelihood exp(m) - (1 + y) m of a count, in units of half its declared maximum.

    A count is maximum / 2 (1 + y) with y in [-1, 1], its mean maximum / 2 exp(x z).
    """

    name, labels, unit = "poisson", "numbers", "nat"
    margin = "the logarithm of the mean"
    residual, loss = staticmethod(_residual), staticmethod(_loss)
    practical = Practical(clip=0.25, noise=2.0, reach=20.0)

    def constants(self, square: float, radius: float, classes: int) -> Constants:
        """Return G = ||z|| exp(R ||z||) and L = ||z||^2 exp(R ||z||), as |m| <= R ||z|| on the ball."""
        length = math.sqrt(square)
        if radius * length > 300:
            raise InputError(f"loss = poisson is too large for --diameter {2 * radius:g}; give a smaller one")
        largest = math.exp(radius * length)
        return Constants(length * largest, square * largest, 12.0)

    def own_units(self, low: float, high: float) -> tuple[float, float]:
        return 1.0, math.log(high / 2)

    def check_range(self, low: float, high: float) -> None:
        if low != 0:
            raise InputError(f"loss = poisson is for counts from 0 on, not {low:g}; give --loss squared")

    def predictions(self, margins: Array) -> Array:
        predicted: Array = np.minimum(1.0, np.exp(margins[:, 0]) - 1)
        return predicted
