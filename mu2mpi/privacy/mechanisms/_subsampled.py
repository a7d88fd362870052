"""Mechanisms for sums over random samples, accounted for by an epsilon at a delta instead of a rho."""

import math
from abc import abstractmethod
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, ClassVar, Self

from mu2mpi.core.errors import InputError
from mu2mpi.privacy.accounting.guarantee import Approximate, Budget, Gaussian, Guarantee
from mu2mpi.privacy.accounting.pld import LEAST, MAX_MULTIPLIER, MOST_ROUNDS, least_multiplier
from mu2mpi.privacy.mechanisms.mechanism import Mechanism
from mu2mpi.privacy.noise.sampler_error import RESERVE
from mu2mpi.privacy.release import Release


class Subsampled(Mechanism):
    """The same noise in sums over random samples: no rho describes them, but an epsilon at a delta."""

    spends = "epsilon"
    account: ClassVar[str]  # how it is known what they reveal
    # Of (C, n, K, T, epsilon, delta, reserve), if K of n terms, of norm at most C, are in each of T sums
    least_sigma: ClassVar[Callable[..., float]]
    epsilon_by: ClassVar[Callable[..., float]]  # of (C, n, K, T, sigma, delta), with exact noise

    @classmethod
    def accounts_for(cls, release: Release) -> bool:
        """Return whether samples are drawn in the way that the name says."""
        return release.chance == cls.name

    @classmethod
    def calibrate(cls, budget: Budget, release: Release) -> Self:
        """Return the mechanism with the noise that its account asks for."""
        if math.isinf(budget.rho):
            return cls.of(release, 0.0)
        sizes = release.clip_norm, release.samples, release.drawn, release.rounds
        return cls.of(release, cls.least_sigma(*sizes, budget.epsilon, budget.delta, RESERVE))

    def epsilon(self, rounds: int, delta: float) -> float:
        """Return the epsilon of so many rounds with exact noise."""
        return self.epsilon_by(self.clip_norm, self.samples, self.drawn, rounds, self.sigma, delta)

    def guarantee(self, rounds: int | None = None, draws: int = 1) -> Guarantee:
        """Return the epsilons of all messages, or of the first."""
        number = self.rounds if rounds is None else rounds
        if number == 0:
            return Gaussian(0.0)
        curve = partial(self.epsilon, number) if self.is_noisy else lambda delta: math.inf
        return Approximate(curve, self.deviation(number, draws))

    @property
    def words(self) -> str:
        """How it is known what is revealed, and what is drawn."""
        drawn = f"{self.drawn:.6g} of its {self.samples:,} samples"
        return f"by {self.account}. A machine draws {drawn} in each round, in secret."


class ByLosses(Subsampled):
    """Noise in sums over random samples, with the distribution of the privacy loss as its account."""

    account = "the distribution of the privacy loss, which dp-accounting computes"

    @staticmethod
    @abstractmethod
    def losses(multiplier: float, samples: int, drawn: float, rounds: int) -> Any:
        """Return the privacy loss distribution of all rounds, `multiplier` being sigma / C."""

    @classmethod
    def start(cls, samples: int, drawn: float, rounds: int, epsilon: float, delta: float) -> float:
        """Return noise in units of C with which a search for the least begins."""
        return 1.0

    @classmethod
    def least_sigma(cls, C: float, *asked: Any) -> float:
        """Return noise, of n, K, T, epsilon, delta, reserve, with which `epsilon_by` is at most epsilon."""
        return C * _least_of(cls, *asked)

    @classmethod
    def epsilon_by(
        cls, C: float, samples: int, drawn: float, rounds: int, sigma: float, delta: float
    ) -> float:
        """Return an epsilon of a sum in each round over K of n terms of norm at most C, rounded up."""
        return float(cls.losses(sigma / C, samples, drawn, rounds).get_epsilon_for_delta(delta))

    def out_of_range(self) -> list[str]:
        """Say with which of its numbers nothing can be computed, or no losses can be listed."""
        found = super().out_of_range()
        if self.sigma != 0 and not LEAST * self.clip_norm <= self.sigma <= MAX_MULTIPLIER * self.clip_norm:
            found.append(f"no epsilon is computed for sigma = {self.sigma!r} beside {self.clip_norm!r}")
        return found


@lru_cache(maxsize=32)
def _least_of(
    kind: type[ByLosses],
    samples: int,
    drawn: float,
    rounds: int,
    epsilon: float,
    delta: float,
    reserve: float = 0.0,
) -> float:
    if rounds > MOST_ROUNDS:
        raise InputError(
            f"{rounds} rounds are too many to be accounted for exactly; give at most --rounds {MOST_ROUNDS}"
        )
    start = min(kind.start(samples, drawn, rounds, epsilon, delta), MAX_MULTIPLIER)
    return least_multiplier(
        partial(kind.epsilon_by, 1.0, samples, drawn, rounds), epsilon, delta, reserve, start
    )
