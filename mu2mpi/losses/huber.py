"""Huber's loss: linear regression in which no sample pulls harder than another."""

import math

from mu2mpi.core.kernels import inline
from mu2mpi.core.registry import register
from mu2mpi.losses.loss import Constants, Practical, Problem

_THRESHOLD = 0.25  # errors beyond an eighth of the declared range, whose length is 2, count linearly


@inline
def _residual(margins, label):  # type: ignore[no-untyped-def]
    margins[0] = min(_THRESHOLD, max(-_THRESHOLD, margins[0] - label))


@inline
def _loss(margins, label):  # type: ignore[no-untyped-def]
    """Return e^2 / 2 of a small error and h (|e| - h / 2) of a larger one; and the prediction's, squared."""
    size = abs(margins[0] - label)
    clipped = min(1.0, max(-1.0, margins[0])) - label
    value = 0.5 * size * size if size <= _THRESHOLD else _THRESHOLD * (size - 0.5 * _THRESHOLD)
    return value, clipped * clipped


@register
class Huber(Problem):
    """Half the squared error, linear beyond 1/4 (Huber, 1964), of a number with the range [-1, 1]."""

    name, labels = "huber", "numbers"
    margin = "the prediction"
    residual, loss = staticmethod(_residual), staticmethod(_loss)
    practical = Practical(clip=0.8, noise=0.25)

    def constants(self, square: float, radius: float, classes: int) -> Constants:
        """Return G = ||z|| / 4, as |r| is at most the threshold, and L = ||z||^2."""
        return Constants(_THRESHOLD * math.sqrt(square), square, 2.0)
