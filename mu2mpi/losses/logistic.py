"""Logistic regression: two classes told apart by one row of weights."""

import math

import numpy as np

from mu2mpi.core.errors import InputError
from mu2mpi.core.kernels import inline
from mu2mpi.core.registry import register
from mu2mpi.losses.loss import Array, Constants, Practical, Problem


@inline
def _residual(margins, label):  # type: ignore[no-untyped-def]
    """Turn the margin m in place into 1 / (1 + exp(-m)) - label, without a number that is too large."""
    small = np.exp(-abs(margins[0]))
    probability = (1.0 if margins[0] >= 0.0 else small) / (1.0 + small)
    margins[0] = probability - label


@inline
def _loss(margins, label):  # type: ignore[no-untyped-def]
    """Return log(1 + exp(-u)) with u = m for the second class and -m for the first, and whether u > 0."""
    u = margins[0] if label == 1 else -margins[0]
    return np.log1p(np.exp(-abs(u))) + max(0.0, -u), (margins[0] > 0.0) == (label == 1)


@register
class Logistic(Problem):
    """The loss log(1 + exp(-u)), in nats, where u = x z, or -x z for the first of two classes."""

    name, unit = "logistic", "nat"
    margin = "the log-odds"
    residual, loss = staticmethod(_residual), staticmethod(_loss)
    practical = Practical(clip=0.6, noise=4.0)

    def rows(self, classes: int) -> int:
        if classes != 2:
            raise InputError(f"loss = {self.name} needs two classes, not {classes}; give --loss softmax")
        return 1

    def constants(self, square: float, radius: float, classes: int) -> Constants:
        """Return G = ||z||, as |r| <= 1, and L = ||z||^2 / 4, as the second derivative is p (1 - p)."""
        return Constants(math.sqrt(square), square / 4, 6.0)

    def scores(self, margins: Array) -> Array:
        small = np.exp(-np.abs(margins[:, 0]))
        of_second = np.where(margins[:, 0] >= 0, 1.0, small) / (1 + small)
        of_first = np.where(margins[:, 0] >= 0, small, 1.0) / (1 + small)
        return np.column_stack([of_first, of_second])
