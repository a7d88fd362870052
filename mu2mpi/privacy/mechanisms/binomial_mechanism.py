"""Binomial noise: the number of heads among fair coins, of which each machine throws its share.

Cheu, Joseph, Mao and Peng, "Shuffle private stochastic convex optimization", 2022. A shift of it is nearly as
private as one of a normal (docs/background/privacy-proofs.md), so that messages compose alike.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import register
from mu2mpi.privacy.accounting.guarantee import Budget
from mu2mpi.privacy.mechanisms.gaussian_mechanism import GaussianReleases
from mu2mpi.privacy.mechanisms.mechanism import agree
from mu2mpi.privacy.noise.grid import choose_resolution
from mu2mpi.privacy.noise.sampler_error import EXACT, FARTHEST, FEWEST_COINS, RAREST, Deviation
from mu2mpi.privacy.release import Release

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mu2mpi.privacy.noise.noise_source import NoiseSource

# Bits between the grid and the deviation of the noise: enough for it to be nearly normal, and no more
# than integers of 64 bits have room for
_NOISY_BITS, _MOST_BITS = 8, 27


def unit_rho(flips: float) -> float:
    """Return e such that a shift by one of the number of heads among so many coins is e-Gaussian-DP.

    Of fewer than `FEWEST_COINS` nothing is said. Up to R = `FARTHEST` deviations, no second difference of
    -log p is larger than k = (N + 1) / ((N/2)^2 - R^2), and e solves e^2 (1 - e^2 / 4) = k:
    docs/background/privacy-proofs.md.
    """
    if flips < FEWEST_COINS:
        return math.inf
    k = (flips + 1) / (flips * flips / 4 - FARTHEST**2 * flips / 4)
    return math.sqrt(2 * k / (1 + math.sqrt(1 - k)))


@register
@dataclass(frozen=True, kw_only=True)
class BinomialReleases(GaussianReleases):
    """The same noise in every message: that of the coins of `parts` machines hides a sample.

    A sample is in as many messages as of `GaussianReleases`, and moves each by at most 2 C. Each machine
    throws so many `coins` for each coordinate; its message is the sum of `summed` increments.
    """

    name = "binomial"
    belongs = True
    noise_words = ", of fair coins, as private as normal noise but for a probability of e^-640"
    ranges = GaussianReleases.ranges | {"coins": (0, 2**58), "summed": (1, math.inf)}

    coins: int
    summed: int

    @classmethod
    def calibrate(cls, budget: Budget, release: Release) -> Self:
        """Return the mechanism with the fewest coins that keep to a budget."""
        own = {"rho": budget.rho, "touched": release.touched, **cls.own(release)}
        moved = 2 * release.clip_norm * math.sqrt(release.touched)
        about = moved / budget.rho
        if not 0 < about < math.inf:
            return cls.of(release, about, coins=0, **own)
        resolution = choose_resolution(release, about, noisy_bits=_NOISY_BITS)
        everyones = about * math.sqrt(release.machines / release.parts)
        resolution = max(resolution, 2.0 ** (math.ceil(math.log2(everyones)) - _MOST_BITS))
        if about / resolution < 2.0**_NOISY_BITS:
            raise InputError(
                "so many machines have no grid for binomial noise; give fewer, or fewer colluders"
            )
        coins = 2 * math.ceil(fewest_coins(budget.rho * resolution / moved) / (2 * release.parts))
        sigma = math.sqrt(release.parts * coins) / 2 * resolution
        return cls(sigma=sigma, resolution=resolution, coins=coins, **cls.sizes(release), **own)

    @staticmethod
    def own(release: Release) -> dict[str, Any]:
        """Return what it states of messages beside what all mechanisms do."""
        return {"summed": release.summed}

    def _rho_of(self, squares: int) -> float:
        """Return the rho, as asked for, of messages that a sample moves by 2 C if squares add up."""
        if not self.is_noisy:
            return math.inf
        moved = 2 * self.clip_norm / self.resolution
        found = moved * unit_rho(self.parts * self.coins)
        asked = self.rho / math.sqrt(self.touched)
        return math.sqrt(squares) * max(found, asked)

    def deviation(self, messages: int, draws: int = 1, smallest: float = 1, largest: float = 1) -> Deviation:
        """Return what is left out: draws are exact, but for one that is too far out to be drawn."""
        return Deviation(0.0, 0.0, math.exp(-RAREST)) if self.is_noisy else EXACT

    def noise_source(
        self,
        key: "NDArray[np.uint32]",
        who: tuple[int, int, int],
        variances: float,
        size: int,
        finest: float = math.inf,
    ) -> "NoiseSource":
        """Return the source of the coins of some machines together, or of those that hide a sample."""
        from mu2mpi.privacy.noise.binomial_sampler import BinomialDraws

        if not self.coins:
            return super().noise_source(key, who, variances, size, finest)
        return BinomialDraws(key, who, round(variances * self.parts) * self.coins, self.parameters)

    @property
    def values(self) -> int:
        """No coordinate of a machine's message is larger, in units of the grid."""
        return math.floor(self.summed * self.clip_norm / self.resolution)

    @property
    def messages(self) -> int:
        """How many bits, each with the number of its coordinate, a machine sends in a round."""
        return self.parameters * (2 * self.values + self.coins)

    @property
    def price(self) -> str:
        """Say what a machine would have to send."""
        size = 1 + max(1, (self.parameters - 1).bit_length())
        return (
            f"In each round a machine sends {self.messages:.4g} messages of {size} bits: for each coordinate "
            f"{2 * self.values:,} of its value and {self.coins:,} of noise. In {self.rounds:,} rounds "
            f"{self.machines:,} machines send {self.messages * self.rounds * self.machines:.3g} of them."
        )

    def faults(self, delta: float) -> list[str]:
        """Say which of its numbers cannot be."""
        found = super().faults(delta)
        if not agree(self.sigma, math.sqrt(self.parts * self.coins) / 2 * self.resolution):
            found.append(f"sigma = {self.sigma:.10g} is not that of {self.coins:,} coins")
        elif self.is_noisy and self.parts * self.coins < FEWEST_COINS:
            found.append(f"of {self.coins:,} coins nothing is known")
        return found


def fewest_coins(e: float) -> float:
    """Return for how many coins `unit_rho` is e: the root of k (N^2 - 1444 N) = 4 N + 4 for N."""
    k = e * e * (1 - e * e / 4)
    b = FARTHEST**2 * k + 4
    return (b + math.sqrt(b * b + 16 * k)) / (2 * k) * (1 + 2.0**-40)
