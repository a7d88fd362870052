"""Gaussian noise correlated over rounds (DP-FTRL, matrix mechanism) for streams that a sample enters once.

A stream may depend on earlier messages if the strategy matrix is lower triangular: Denisov, McMahan, Rush,
Smith and Thakurta, "Improved differential privacy for SGD via optimal private linear operators on adaptive
streams", 2022. Proof, rounding included: docs/background/privacy-proofs.md.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field, field_validator

from mu2mpi.core.errors import InputError
from mu2mpi.core.options import Options
from mu2mpi.core.registry import register
from mu2mpi.privacy.accounting.guarantee import Budget, GaussianGuarantee
from mu2mpi.privacy.mechanisms.mechanism import MIN_POSITIVE, Mechanism
from mu2mpi.privacy.noise.grid import choose_grid_spacing
from mu2mpi.privacy.noise.sampler_error import DITHER_THRESHOLD, MIN_STD_UNITS
from mu2mpi.privacy.release import Release

if TYPE_CHECKING:
    from mu2mpi.privacy.noise.correlation import Correlation

# Ranges in which the buffers' coefficients are verified to approximate those of a power, and to decrease. A
# power of 0 is the identity matrix: noise is independent over the stream, and nothing cancels.
MIN_POWER = 0.2
MAX_POWER = 0.9
MIN_BUFFERS = 2
MAX_BUFFERS = 8
_DEFAULT_POWER = 0.75  # as good as any on digits and synthetic data
_DEFAULT_BUFFERS = 4
_MAX_ROUNDS = 10**6  # the learning rate depends on the noise of every round
_ARITHMETIC_SHARE = 2.0**-14  # share of rho that covers floating-point errors of the buffers
_SAFETY_FACTOR = 4.0  # bound on accumulated noise, or a buffer, in units of its estimate by the power


class CorrelatedOptions(Options):
    """Strategy that correlates noise over rounds, so that it cancels in their sum."""

    noise_correlation: float | None = Field(
        None,
        ge=0,
        le=MAX_POWER,
        description=f"power p of strategy (1 - x)^-p, {MIN_POWER:g} to {MAX_POWER:g}; 0: independent noise",
        json_schema_extra={
            "details": "The strategy correlates noise over rounds, so that it cancels in their sum "
            "(docs/background/methods.md)."
        },
    )
    noise_buffers: int | None = Field(
        None,
        ge=MIN_BUFFERS,
        le=MAX_BUFFERS,
        description="number of exponentials that approximate the strategy, each a buffer per machine "
        f"[default: {_DEFAULT_BUFFERS}]",
    )

    @field_validator("noise_correlation")
    @classmethod
    def _check_power(cls, value: float | None) -> float | None:
        if value and value < MIN_POWER:
            raise ValueError(f"should be 0, or {MIN_POWER:g} to {MAX_POWER:g}")
        return value

    @property
    def strategy(self) -> tuple[float, int]:
        """Power and number of buffers, with defaults filled in."""
        power = self.noise_correlation
        return _DEFAULT_POWER if power is None else power, self.noise_buffers or _DEFAULT_BUFFERS


def check_rounds(rounds: int) -> None:
    """Raise InputError if there are too many rounds for correlated noise."""
    if rounds > _MAX_ROUNDS:
        raise InputError(f"--rounds must be at most {_MAX_ROUNDS} for correlated noise, got {rounds}.")


@register
@dataclass(frozen=True, kw_only=True)
class CorrelatedMechanism(Mechanism):
    """Matrix mechanism: sigma = 2 clip_norm / rho times the largest column norm of the strategy matrix."""

    name = "correlated"
    options = CorrelatedOptions
    correlates_rounds = True
    noise_description = " of the strategy; messages cancel part of the noise of earlier rounds"
    ranges = Mechanism.ranges | {"rounds": (1, _MAX_ROUNDS), "rho": (MIN_POSITIVE, math.inf)}
    ranges |= {"power": (0, MAX_POWER), "buffers": (MIN_BUFFERS, MAX_BUFFERS)}

    rho: float
    power: float
    buffers: int
    is_cumulative: bool

    @classmethod
    def supports(cls, release: Release) -> bool:
        """Whether each sample is in one element of the stream only."""
        once = release.is_cumulative or release.affected_sums == 1
        return release.subsampling == "" and once and not release.hides_iterates

    @classmethod
    def calibrate(cls, budget: Budget, release: Release) -> Self:
        """Return the mechanism with the least noise within the budget."""
        fields = {"rho": budget.rho, **cls.release_fields(release), **cls.extra_fields(release)}
        noiseless = cls(sigma=0.0, grid_spacing=1.0, **fields)
        check_rounds(release.rounds)
        if math.isfinite(budget.rho) and noiseless._arithmetic_error > _ARITHMETIC_SHARE * budget.rho:
            raise InputError(
                f"Rounding errors of correlated noise are too large for {release.rounds} rounds of "
                f"{release.parameters} parameters. Use fewer --rounds or a larger --rho."
            )
        sensitivity = noiseless.correlation.sensitivity
        sigma = 2 * release.clip_norm * sensitivity * (1 + _ARITHMETIC_SHARE) / budget.rho
        if not math.isfinite(sigma):
            return cls.from_sigma(release, sigma)
        min_sigma = sigma / math.sqrt(release.noise_shares)
        grid_spacing = choose_grid_spacing(release, sigma * noiseless._max_amplification, min_sigma=min_sigma)
        return cls(sigma=sigma, grid_spacing=grid_spacing, **fields)

    @staticmethod
    def extra_fields(release: Release) -> dict[str, Any]:
        """Fields that are copied from a release, beyond those of all mechanisms."""
        power, buffers = release.options.strategy
        return {"power": power, "buffers": buffers, "is_cumulative": release.is_cumulative}

    @cached_property
    def correlation(self) -> "Correlation":
        """Strategy; columns are normalised for streams, but not for running sums, where it costs utility."""
        # Imported here so that listing the options of mechanisms does not import numpy.
        from mu2mpi.privacy.noise.correlation import Correlation

        return Correlation(self.power, self.buffers, self.rounds, not self.is_cumulative, self.is_cumulative)

    @property
    def _growth(self) -> float:
        """Growth of sums of noise with T: (1 - x)^p has the coefficients of the p-th difference."""
        return float(self.rounds ** max(0.0, 0.5 - self.power)) * math.sqrt(1 + math.log(self.rounds))

    @property
    def _max_amplification(self) -> float:
        """Bound on the noise of a message in units of the largest of sigma's draws: sums of |c^-1|."""
        sums = self.rounds ** (1 - self.power) if self.is_cumulative else self.correlation.max_column_norm
        return _SAFETY_FACTOR * sums

    @property
    def max_noise_std(self) -> float:
        """Upper bound on the noise std of a message in any round."""
        return self.sigma * self._max_amplification

    @property
    def equivalent_sigma(self) -> float:
        """Std of independent noise with a similar effect on running sums; sigma for streams of gradients."""
        independent = 2 * self.clip_norm * math.sqrt(self.rounds) / self.rho
        return independent * self.noise_accumulation if self.is_cumulative else self.sigma

    @property
    def noise_accumulation(self) -> float:
        """Factor on the noise of the sum of all messages if rounds do not cancel each other's noise."""
        T = self.rounds
        return math.sqrt((T + 1) * (2 * T + 1) / (6 * T)) if self.is_cumulative and not self.power else 1.0

    @property
    def _arithmetic_error(self) -> float:
        """L2 norm of all floating-point errors in units of sigma: docs/background/privacy-proofs.md."""
        draws = math.sqrt(self.rounds * self.noise_shares) * (math.sqrt(self.parameters) + math.sqrt(1400))
        return 2 * 4 * 2.0**-53 * self.correlation.memory * _SAFETY_FACTOR * self._growth * draws

    @property
    def dither_threshold(self) -> float:
        """Largest noise std, in grid units, for which the errors of all draws cost little epsilon."""
        if not (self.is_noisy and math.isfinite(self.rho)):
            return DITHER_THRESHOLD
        draws = math.sqrt(self.rounds * self.noise_shares * self.parameters)
        threshold = 2.0 ** math.floor(math.log2(2.0**33 * self.rho / draws))
        return min(DITHER_THRESHOLD, max(MIN_STD_UNITS, threshold))

    def round_sigma(self, t: int) -> float:
        """Std of the fresh noise drawn in round t, to which a combination of earlier rounds' is added."""
        return self.sigma * self.correlation.column_norm(t)

    def guarantee(self, rounds: int | None = None, aggregated_machines: int = 1) -> GaussianGuarantee:
        """Guarantee for the first `rounds` messages (by default all), of the sample that loses most."""
        count = self.rounds if rounds is None else rounds
        if count == 0:
            return GaussianGuarantee(0.0)
        if not self.is_noisy:
            return GaussianGuarantee(math.inf)
        strategy = self.correlation
        sensitivity = 2 * self.clip_norm * strategy.sensitivity * (1 + _ARITHMETIC_SHARE)
        sensitivity *= strategy.sensitivity_fraction(1, count)
        error = self.sampler_error(self.rounds, aggregated_machines, largest=strategy.max_column_norm)
        return GaussianGuarantee(sensitivity / self.sigma, error)

    def rho_fraction(self, first: int, last: int) -> float:
        """Fraction of a sample's total rho that the stream from round `first` to `last` spends."""
        return self.correlation.sensitivity_fraction(first, last)
