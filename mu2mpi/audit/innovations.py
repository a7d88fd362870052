"""The fresh draws behind correlated noise, which whoever knows the rounds before can tell.

An adversary that guesses right what messages hide has the noise Y_t, takes away what follows from the rounds
before, and is left with the draw of this one. It has to be normal, of its size, and to have been rounded with
all the rest and not before: if integers were scaled by the norm of a column, the noise could be some integers
and not others, and only the right guess fits.
"""

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from mu2mpi.audit.structure import Fault
from mu2mpi.privacy.correlation import Correlation
from mu2mpi.problem.base import Array

TELLING = 1.05
"""From this norm on, few enough integers are multiples of it for that to be seen."""


class Innovations:
    """The fresh draws of consecutive rounds, in units of the grid, taken from noise of shape (d,)."""

    def __init__(self, correlation: Correlation, d: int) -> None:
        self._of = correlation
        self._buffers, self._before = np.zeros((len(correlation.weights), d)), np.zeros(d)
        self.counts = np.zeros(4)
        """How many multiples there are among the noise and among draws, how many are expected of either, and
        the variance of that."""

    def take(self, t: int, noise: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the draw of round t, rounded, given the noise of its message."""
        y = noise - self._before
        if self._of.lasts:
            self._before = noise.astype(np.float64)
        norm = self._of.norm(t)
        u = y / norm
        fresh: Array = u + self._of.weights @ self._buffers
        self._buffers = self._buffers * self._of.decays[:, np.newaxis] + u
        if norm > TELLING:
            near = [float(np.sum(np.abs(x - np.rint(x)) * norm <= 0.5)) for x in (u, fresh)]
            self.counts += [*near, y.size / norm, y.size * (1 / norm) * (1 - 1 / norm)]
        return np.rint(fresh).astype(np.int64)


def rounding_faults(counts: Array, risk: float) -> tuple[Fault, ...]:
    """Say whether noise was rounded before it was scaled; `counts` are those of all `Innovations` together.

    Faultless noise, of which any integer is as likely as the next, errs with probability `risk`.
    """
    expected, variance = counts[2:]
    limit = NormalDist().inv_cdf(1 - risk / 2) * math.sqrt(variance)
    return tuple(
        (True, f"{what} of correlated messages was rounded before it was scaled")
        for what, found in zip(("the noise", "the fresh draw"), counts[:2].tolist(), strict=True)
        if found - expected > limit
    )
