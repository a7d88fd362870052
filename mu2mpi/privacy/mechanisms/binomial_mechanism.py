"""Binomial mechanism: noise is the number of heads among fair coins that the machines flip.

Cheu, Joseph, Mao and Peng, "Shuffle private stochastic convex optimization", 2022. A shift of binomial noise
is nearly as private as one of normal noise (docs/background/privacy-proofs.md), so that it composes like GDP.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import register
from mu2mpi.privacy.accounting.guarantee import Budget
from mu2mpi.privacy.mechanisms.gaussian_mechanism import GaussianMechanism
from mu2mpi.privacy.mechanisms.mechanism import approx_equal
from mu2mpi.privacy.noise.grid import choose_grid_spacing
from mu2mpi.privacy.noise.sampler_error import (
    MAX_NEG_LOG_PROBABILITY,
    MIN_FAIR_BITS,
    TRUNCATION_STDS,
    SamplerError,
)
from mu2mpi.privacy.released_sums import ReleasedSums

if TYPE_CHECKING:
    from mu2mpi.privacy.noise.noise_source import NoiseSource
    from mu2mpi.privacy.noise.noise_stream import Key, StreamRange

_MIN_LOG2_STD = 8  # log2 of sigma in grid units: enough coins for nearly normal noise
_MAX_LOG2_TOTAL_STD = 27  # log2 of the std of all noise in grid units: sums fit into 64-bit integers


def unit_shift_rho(fair_bits: float) -> float:
    """GDP parameter rho of releasing an integer of sensitivity 1 plus the heads among `fair_bits` fair coins.

    Infinite below `MIN_FAIR_BITS`. Within R = `TRUNCATION_STDS` deviations, every second difference of -log p
    is at most k = (N + 1) / ((N/2)^2 - R^2), and rho solves rho^2 (1 - rho^2 / 4) = k.
    """
    if fair_bits < MIN_FAIR_BITS:
        return math.inf
    k = (fair_bits + 1) / (fair_bits * fair_bits / 4 - TRUNCATION_STDS**2 * fair_bits / 4)
    return math.sqrt(2 * k / (1 + math.sqrt(1 - k)))


@register
@dataclass(frozen=True, kw_only=True)
class BinomialMechanism(GaussianMechanism):
    """Binomial noise of fair coins of `noise_shares` machines per sum; composes as `GaussianMechanism`."""

    name = "binomial"
    noise_description = ", of fair coins, as private as normal noise but for a probability of e^-640"
    field_ranges = GaussianMechanism.field_ranges | {"fair_bits": (0, 2**58)}
    field_ranges |= {"increments_per_message": (1, math.inf)}

    fair_bits: int  # that each machine flips per coordinate and round
    increments_per_message: int

    @classmethod
    def calibrate(cls, budget: Budget, released_sums: ReleasedSums) -> Self:
        """Build the mechanism with the fewest fair coins per machine within the privacy budget."""
        machines, noise_shares = released_sums.machines, released_sums.noise_shares
        sensitivity = released_sums.sensitivity * math.sqrt(released_sums.affected_sums)
        normal_sigma = sensitivity / budget.rho
        if not 0 < normal_sigma < math.inf:
            return cls.from_sigma(released_sums, normal_sigma, rho=budget.rho, fair_bits=0)
        grid_spacing = choose_grid_spacing(released_sums, normal_sigma, noise_bits=_MIN_LOG2_STD)
        total_sigma = normal_sigma * math.sqrt(machines / noise_shares)
        grid_spacing = max(grid_spacing, 2.0 ** (math.ceil(math.log2(total_sigma)) - _MAX_LOG2_TOTAL_STD))
        if normal_sigma / grid_spacing < 2.0**_MIN_LOG2_STD:
            raise InputError(
                f"Binomial noise of {machines} machines does not fit into 64-bit integers. "
                "Use fewer --machines or --colluders."
            )
        all_bits = min_fair_bits(budget.rho * grid_spacing / sensitivity)
        fair_bits = 2 * math.ceil(all_bits / (2 * noise_shares))
        sigma = math.sqrt(noise_shares * fair_bits) / 2 * grid_spacing
        fields = {"rho": budget.rho, "fair_bits": fair_bits, **cls.released_fields(released_sums)}
        return cls(sigma=sigma, grid_spacing=grid_spacing, **fields)

    def _composed_rho(self, n_sums: int) -> float:
        """Compute rho of `n_sums` sums; at least the calibrated rho."""
        if not self.is_noisy:
            return math.inf
        shift = self.sensitivity / self.grid_spacing
        computed = shift * unit_shift_rho(self.noise_shares * self.fair_bits)
        calibrated = self.rho / math.sqrt(self.affected_sums)
        return math.sqrt(n_sums) * max(computed, calibrated)

    def sampler_error(
        self, messages: int, aggregated_machines: int = 1, min_factor: float = 1, max_factor: float = 1
    ) -> SamplerError:
        """Error of the binomial sampler: the probability of its truncated tail, as it is exact otherwise."""
        return SamplerError(0.0, 0.0, math.exp(-MAX_NEG_LOG_PROBABILITY)) if self.is_noisy else SamplerError()

    def noise_source(
        self, key: "Key", streams: "StreamRange", variance_factor: float, size: int, max_std: float = math.inf
    ) -> "NoiseSource":
        from mu2mpi.privacy.noise.binomial_sampler import BinomialNoiseSource

        if not self.fair_bits:
            return super().noise_source(key, streams, variance_factor, size, max_std)
        fair_bits = round(variance_factor * self.noise_shares) * self.fair_bits
        return BinomialNoiseSource(key, streams, fair_bits, self.parameters)

    @property
    def max_message_coordinate(self) -> int:
        """Largest magnitude of a coordinate of a machine's message before noise, in grid units."""
        return math.floor(self.increments_per_message * self.clip_norm / self.grid_spacing)

    @property
    def messages_per_round(self) -> int:
        """Number of shuffled messages (a bit and the index of its coordinate) a machine sends per round."""
        return self.parameters * (2 * self.max_message_coordinate + self.fair_bits)

    @property
    def communication_note(self) -> str:
        bits = 1 + max(1, (self.parameters - 1).bit_length())
        return (
            f"In each round a machine sends {self.messages_per_round:.4g} messages of {bits} bits: for each "
            f"coordinate {2 * self.max_message_coordinate:,} of its value and {self.fair_bits:,} of noise. "
            f"In {self.rounds:,} rounds {self.machines:,} machines send "
            f"{self.messages_per_round * self.rounds * self.machines:.3g} of them."
        )

    def consistency_errors(self, delta: float) -> list[str]:
        errors = super().consistency_errors(delta)
        noise_std = math.sqrt(self.noise_shares * self.fair_bits) / 2 * self.grid_spacing
        if not approx_equal(self.sigma, noise_std):
            errors.append(f"sigma = {self.sigma:.10g} is not the noise std of {self.fair_bits:,} coins")
        elif self.is_noisy and self.noise_shares * self.fair_bits < MIN_FAIR_BITS:
            errors.append(f"coins = {self.fair_bits:,} is too small for a known guarantee")
        return errors


def min_fair_bits(rho: float) -> float:
    """Smallest number N of fair coins with `unit_shift_rho(N) <= rho`: root of k (N^2 - 1444 N) = 4 N + 4."""
    k = rho * rho * (1 - rho * rho / 4)
    b = TRUNCATION_STDS**2 * k + 4
    return (b + math.sqrt(b * b + 16 * k)) / (2 * k) * (1 + 2.0**-40)
