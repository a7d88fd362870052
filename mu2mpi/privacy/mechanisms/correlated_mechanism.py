"""Matrix mechanism (DP-FTRL): Gaussian noise correlated over rounds, if a sample affects one gradient.

A stream may depend on earlier messages if the strategy matrix is lower triangular: Denisov, McMahan, Rush,
Smith and Thakurta, "Improved differential privacy for SGD via optimal private linear operators on adaptive
streams", 2022. Proof, rounding included: docs/background/privacy-proofs.md.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from pydantic import Field, field_validator

from mu2mpi.core.errors import InputError
from mu2mpi.core.options import Options
from mu2mpi.core.registry import register
from mu2mpi.privacy.accounting.guarantee import Budget, GaussianGuarantee
from mu2mpi.privacy.mechanisms.mechanism import MIN_POSITIVE, Mechanism
from mu2mpi.privacy.noise.correlation import Correlation
from mu2mpi.privacy.noise.grid import choose_grid_spacing
from mu2mpi.privacy.noise.sampler_error import DITHER_THRESHOLD, MIN_STD_UNITS
from mu2mpi.privacy.released_sums import ReleasedSums

# Ranges in which the buffers' coefficients are verified to approximate those of a power, and to decrease. A
# power of 0 is the identity matrix: noise is independent over the stream, and nothing cancels.
MIN_NOISE_CORRELATION, MAX_NOISE_CORRELATION = 0.2, 0.9
MIN_NOISE_BUFFERS, MAX_NOISE_BUFFERS = 2, 8
_DEFAULT_NOISE_CORRELATION, _DEFAULT_NOISE_BUFFERS = 0.75, 4  # as good as any on digits and synthetic data
_MAX_ROUNDS = 10**6  # the learning rate depends on the noise of every round
_ROUNDOFF_RHO_SHARE = 2.0**-14  # share of rho that covers floating-point errors of the buffers
_NOISE_SAFETY_FACTOR = 4.0  # bound on accumulated noise, or on a buffer, over its estimate T^(1 - power)


class CorrelatedOptions(Options):
    """Options of the strategy that correlates noise over rounds, so that it cancels in their sum."""

    noise_correlation: float | None = Field(
        None,
        ge=0,
        le=MAX_NOISE_CORRELATION,
        description=f"power p of strategy (1 - x)^-p, {MIN_NOISE_CORRELATION:g} to "
        f"{MAX_NOISE_CORRELATION:g}; 0: independent noise",
        json_schema_extra={
            "details": "The strategy correlates noise over rounds, so that it cancels in their sum "
            "(docs/background/methods.md)."
        },
    )
    noise_buffers: int | None = Field(
        None,
        ge=MIN_NOISE_BUFFERS,
        le=MAX_NOISE_BUFFERS,
        description="number of exponentials that approximate the strategy, each a buffer per machine "
        f"[default: {_DEFAULT_NOISE_BUFFERS}]",
    )

    @field_validator("noise_correlation")
    @classmethod
    def _check_noise_correlation(cls, value: float | None) -> float | None:
        if value and value < MIN_NOISE_CORRELATION:
            raise ValueError(f"should be 0, or {MIN_NOISE_CORRELATION:g} to {MAX_NOISE_CORRELATION:g}")
        return value

    @property
    def power_and_buffers(self) -> tuple[float, int]:
        """Power p and number of buffers of the noise strategy, with defaults filled in."""
        power = _DEFAULT_NOISE_CORRELATION if self.noise_correlation is None else self.noise_correlation
        return power, self.noise_buffers or _DEFAULT_NOISE_BUFFERS


def check_correlated_rounds(rounds: int) -> None:
    """Raise InputError if the number of rounds is too large for correlated noise."""
    if rounds > _MAX_ROUNDS:
        raise InputError(f"--rounds must be at most {_MAX_ROUNDS} for correlated noise, got {rounds}.")


@register
@dataclass(frozen=True, kw_only=True)
class CorrelatedMechanism(Mechanism):
    """Matrix mechanism: sigma = sensitivity / rho times the largest column norm of the strategy matrix."""

    name = "correlated"
    options = CorrelatedOptions
    correlates_rounds = True
    noise_description = " of the strategy; messages cancel part of the noise of earlier rounds"
    field_ranges = Mechanism.field_ranges | {"rounds": (1, _MAX_ROUNDS), "rho": (MIN_POSITIVE, math.inf)}
    field_ranges |= {"power": (0, MAX_NOISE_CORRELATION), "buffers": (MIN_NOISE_BUFFERS, MAX_NOISE_BUFFERS)}

    rho: float
    power: float
    buffers: int
    is_cumulative: bool

    @classmethod
    def supports(cls, released_sums: ReleasedSums) -> bool:
        """Whether each sample affects only one increment of the release, which is not subsampled."""
        enters_once = released_sums.is_cumulative or released_sums.affected_sums == 1
        return released_sums.subsampling == "" and enters_once

    @classmethod
    def calibrate(cls, budget: Budget, released_sums: ReleasedSums) -> Self:
        fields = {"rho": budget.rho, **cls.released_fields(released_sums)}
        noiseless = cls(sigma=0.0, grid_spacing=1.0, **fields)
        check_correlated_rounds(released_sums.rounds)
        if math.isfinite(budget.rho) and noiseless._noise_roundoff_norm > _ROUNDOFF_RHO_SHARE * budget.rho:
            raise InputError(
                f"Rounding errors of correlated noise are too large for {released_sums.rounds} rounds of "
                f"{released_sums.parameters} parameters. Use fewer --rounds or a larger --rho."
            )
        sensitivity = released_sums.sensitivity * noiseless.correlation.sensitivity
        sigma = sensitivity * (1 + noiseless._roundoff_share) / budget.rho
        if not math.isfinite(sigma):
            return cls.from_sigma(released_sums, sigma)
        min_sigma = sigma / math.sqrt(released_sums.noise_shares)
        max_sigma = sigma * noiseless._max_std_ratio
        grid_spacing = choose_grid_spacing(released_sums, max_sigma, min_sigma=min_sigma)
        return cls(sigma=sigma, grid_spacing=grid_spacing, **fields)

    @classmethod
    def released_fields(cls, released_sums: ReleasedSums) -> dict[str, Any]:
        power, buffers = released_sums.mechanism_options.power_and_buffers
        return super().released_fields(released_sums) | {"power": power, "buffers": buffers}

    @cached_property
    def correlation(self) -> Correlation:
        """Noise correlation; its columns are normalised unless messages are running sums, for utility."""
        return Correlation(self.power, self.buffers, self.rounds, not self.is_cumulative, self.is_cumulative)

    @property
    def _noise_sum_std_growth(self) -> float:
        """Growth of the noise std of a sum over T rounds: T^max(0, 1/2 - p), times a logarithm."""
        return float(self.rounds ** max(0.0, 0.5 - self.power)) * math.sqrt(1 + math.log(self.rounds))

    @property
    def _max_std_ratio(self) -> float:
        """Bound on the ratio of any message's noise std to sigma."""
        growth = self.rounds ** (1 - self.power) if self.is_cumulative else self.correlation.column_norm(1)
        return _NOISE_SAFETY_FACTOR * growth

    @property
    def max_noise_std(self) -> float:
        return self.sigma * self._max_std_ratio

    @property
    def equivalent_independent_sigma(self) -> float:
        """Std of independent noise with a similar effect on running sums; sigma for streams of gradients."""
        independent = self.sensitivity * math.sqrt(self.rounds) / self.rho
        return independent * self.uncancelled_std_ratio if self.is_cumulative else self.sigma

    @property
    def uncancelled_std_ratio(self) -> float:
        T = self.rounds
        return math.sqrt((T + 1) * (2 * T + 1) / (6 * T)) if self.is_cumulative and not self.power else 1.0

    @property
    def _noise_roundoff_norm(self) -> float:
        """L2 norm of floating-point errors in the noise of all rounds, in units of sigma."""
        draws = math.sqrt(self.rounds * self.noise_shares) * (math.sqrt(self.parameters) + math.sqrt(1400))
        error = 2 * 4 * 2.0**-53 * self.correlation.memory_rounds * _NOISE_SAFETY_FACTOR
        return error * self._noise_sum_std_growth * draws

    @property
    def _replace_sensitivity_ratio(self) -> float:
        """Ratio of the sensitivity for the relation "replace" to `sensitivity`."""
        return self.unit_sensitivities["replace"] / self.unit_sensitivities[self.neighbours]

    @property
    def _roundoff_share(self) -> float:
        """Share of rho that covers floating-point errors, which are as large under every relation."""
        return _ROUNDOFF_RHO_SHARE * self._replace_sensitivity_ratio

    @property
    def dither_threshold(self) -> float:
        if not (self.is_noisy and math.isfinite(self.rho)):
            return DITHER_THRESHOLD
        draws = math.sqrt(self.rounds * self.noise_shares * self.parameters)
        # Of the noise alone, so that it is the same whatever relation a guarantee is for
        rho = self.rho * self._replace_sensitivity_ratio
        threshold = 2.0 ** math.floor(math.log2(2.0**33 * rho / draws))
        return min(DITHER_THRESHOLD, max(MIN_STD_UNITS, threshold))

    def round_sigma(self, t: int) -> float:
        """Std of the fresh noise drawn in round t, before noise of earlier rounds is added."""
        return self.sigma * self.correlation.column_norm(t)

    def guarantee(self, rounds: int | None = None, aggregated_machines: int = 1) -> GaussianGuarantee:
        messages = self.rounds if rounds is None else rounds
        if messages == 0:
            return GaussianGuarantee(0.0)
        if not self.is_noisy:
            return GaussianGuarantee(math.inf)
        strategy = self.correlation
        sensitivity = self.sensitivity * strategy.sensitivity * (1 + self._roundoff_share)
        sensitivity *= strategy.sensitivity_fraction(1, messages)
        error = self.sampler_error(self.rounds, aggregated_machines, max_factor=strategy.column_norm(1))
        return GaussianGuarantee(sensitivity / self.sigma, error)

    def rho_fraction(self, first_round: int, last_round: int) -> float:
        return self.correlation.sensitivity_fraction(first_round, last_round)
