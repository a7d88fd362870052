"""Gaussian noise in messages that anybody may see, each sample in a known number of them."""

import math
from dataclasses import dataclass
from typing import Self

from mu2mpi.core.registry import register
from mu2mpi.privacy.accounting.gaussian_dp import Releases, rho_of
from mu2mpi.privacy.accounting.guarantee import Budget, Gaussian
from mu2mpi.privacy.mechanisms.mechanism import Mechanism
from mu2mpi.privacy.release import Release


@register
@dataclass(frozen=True, kw_only=True)
class GaussianReleases(Mechanism):
    """The same noise in every message: sigma = 2 C sqrt(touched) / rho, as of Theorems 5.2 and 6.2.

    A sample is in one term, of norm at most C, and moves by at most 2 C the messages that it has `touched`:
    all T if it stays in what is sent, or if each is of all n samples; 1 if it is used once; and T K / n,
    rounded up, in passes by K a round.
    """

    name = "gaussian"
    by_machine = True

    ranges = Mechanism.ranges | {"touched": (1, math.inf)}

    rho: float
    touched: int

    @classmethod
    def accounts_for(cls, release: Release) -> bool:
        """Return whether no sample can be in one message several times."""
        return release.chance != "replacement"

    @classmethod
    def calibrate(cls, budget: Budget, release: Release) -> Self:
        """Return the mechanism with the noise of Theorems 5.2 and 6.2."""
        sigma = 2 * release.clip_norm * math.sqrt(release.touched) / budget.rho
        return cls.of(release, sigma, rho=budget.rho, touched=release.touched)

    def guarantee(self, rounds: int | None = None, draws: int = 1) -> Gaussian:
        """Return the rho of all messages, or of the first, for the sample of which they tell most."""
        number = self.touched_by(self.rounds if rounds is None else rounds)
        if number == 0:
            return Gaussian(0.0)
        return Gaussian(self._rho_of(number), self.deviation(number, draws))

    def _rho_of(self, squares: int) -> float:
        """Return the rho of messages that a sample moves by 2 C, so many times if squares add up."""
        return rho_of([Releases(2 * self.clip_norm, self.sigma, squares)])

    def group(self, samples: int, is_apart: bool, draws: int = 1) -> Gaussian:
        """Return the rho of several samples of a machine, by how many of them are in each message.

        Apart, they are in other messages each, or if they stay, 1, 2, .. k in the first and k in all others.
        """
        k, T = samples, self.rounds
        if not is_apart:
            squares = k * k * self.touched
        elif self.touched < T:
            squares = k * self.touched
        else:
            k = min(k, T)
            squares = k * (k + 1) * (2 * k + 1) // 6 + k * k * (T - k)
        drawn = self.deviation(min(T, k * self.touched), draws)
        return Gaussian(self._rho_of(squares), drawn)

    def rho_spent(self, rounds: int) -> float:
        """Return the rho of the first rounds, for the sample of which they tell most."""
        return self.rho * self.share(1, self.touched_by(rounds)) if rounds else 0.0

    def touched_by(self, rounds: int) -> int:
        """Return how many of the first messages one sample can change."""
        if self.touched in (1, self.rounds):
            return min(rounds, self.touched)
        return self._in_passes(rounds)

    def _in_passes(self, rounds: int) -> int:
        return -(-rounds * round(self.drawn) // self.samples)

    def share(self, first: int, last: int) -> float:
        """Return the root of the share of messages, as rho^2 is in proportion to their number."""
        return math.sqrt((last - first + 1) / self.touched)

    def faults(self, delta: float) -> list[str]:
        """Say which of its numbers cannot be."""
        found = super().faults(delta)
        known = sorted({1, self._in_passes(self.rounds), self.rounds})
        if self.touched not in known:
            found.append(f"touched is {self.touched}, and there is only {' and '.join(map(str, known))}")
        return found
