"""Gaussian noise that cancels between rounds, for samples that are in one element of a stream each.

A stream may depend on earlier messages if the strategy is lower triangular: Denisov, McMahan, Rush, Smith and
Thakurta, "Improved differential privacy for SGD via optimal private linear operators on adaptive streams",
2022. docs/background/privacy-proofs.md has the proof, rounding included.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field, field_validator

from mu2mpi.core.errors import InputError
from mu2mpi.core.options import Options
from mu2mpi.core.registry import register
from mu2mpi.privacy.accounting.guarantee import Budget, Gaussian
from mu2mpi.privacy.mechanisms.mechanism import SMALLEST, Mechanism
from mu2mpi.privacy.noise.grid import choose_resolution
from mu2mpi.privacy.noise.sampler_error import COARSEST, FINEST
from mu2mpi.privacy.release import Release

if TYPE_CHECKING:
    from mu2mpi.privacy.noise.correlation import Correlation

# Powers, and numbers of buffers, for which coefficients are known to be those of a power and to fall. So they
# are for 0, the unit matrix: noise is drawn anew for each element of the stream, and nothing cancels.
LOWEST, HIGHEST, FEWEST_BUFFERS, MOST_BUFFERS = 0.2, 0.9, 2, 8
_POWER, _BUFFERS = 0.75, 4  # by default: on digits and synthetic data as good as any
_MOST_ROUNDS = 10**6  # to choose a learning rate, noise is followed through all of them
_ARITHMETIC = 2.0**-14  # share of rho for errors of floating-point numbers in buffers
_SPREAD = 4.0  # by what noise that is summed up over rounds, or a buffer, may exceed what a power says of it


class CorrelatedOptions(Options):
    """Strategy by which noise is correlated over rounds, so that it cancels in their sum."""

    noise_correlation: float | None = Field(
        None,
        ge=0,
        le=HIGHEST,
        description="power p of the strategy (1 - x)^-p by which noise is correlated over rounds, so that it "
        f"cancels in their sum, {LOWEST:g} to {HIGHEST:g}, or 0 for noise that does not "
        "(docs/background/methods.md)",
    )
    noise_buffers: int | None = Field(
        None,
        ge=FEWEST_BUFFERS,
        le=MOST_BUFFERS,
        description=f"exponentials that stand for it, each an array of each machine [default: {_BUFFERS}]",
    )

    @field_validator("noise_correlation")
    @classmethod
    def _check_power(cls, value: float | None) -> float | None:
        if value and value < LOWEST:
            raise ValueError(f"should be 0, or {LOWEST:g} to {HIGHEST:g}")
        return value

    @property
    def strategy(self) -> tuple[float, int]:
        """Power and number of buffers, by default where the user left them open."""
        power = self.noise_correlation
        return _POWER if power is None else power, self.noise_buffers or _BUFFERS


def check_rounds(rounds: int) -> None:
    """Raise InputError if there are too many rounds to follow the noise through."""
    if rounds > _MOST_ROUNDS:
        raise InputError(f"correlated noise takes at most {_MOST_ROUNDS} rounds; give fewer")


@register
@dataclass(frozen=True, kw_only=True)
class CorrelatedNoise(Mechanism):
    """Noise of which a strategy hides the stream: sigma = 2 C / rho times the norm of its longest column."""

    name = "correlated"
    options = CorrelatedOptions
    stays = True
    noise_words = " of the strategy, and another in messages, as noise of earlier rounds is cancelled there"
    ranges = Mechanism.ranges | {"rounds": (1, _MOST_ROUNDS), "rho": (SMALLEST, math.inf)}
    ranges |= {"power": (0, HIGHEST), "buffers": (FEWEST_BUFFERS, MOST_BUFFERS)}

    rho: float
    power: float
    buffers: int
    lasts: bool

    @classmethod
    def accounts_for(cls, release: Release) -> bool:
        """Return whether each sample is in one element of the stream alone."""
        return release.chance == "" and (release.lasts or release.touched == 1) and not release.is_hidden

    @classmethod
    def calibrate(cls, budget: Budget, release: Release) -> Self:
        """Return the mechanism with the least noise, or InputError if there are too many rounds."""
        own = cls.own(release)
        whole = cls(sigma=0.0, resolution=1.0, rho=budget.rho, **cls.sizes(release), **own)
        check_rounds(release.rounds)
        if math.isfinite(budget.rho) and whole._arithmetic > _ARITHMETIC * budget.rho:
            raise InputError(
                f"rounding errors of correlated noise would matter in {release.rounds} rounds of "
                f"{release.parameters} parameters; give fewer rounds, or a larger rho"
            )
        sigma = 2 * release.clip_norm * whole.correlation.sensitivity * (1 + _ARITHMETIC) / budget.rho
        if not math.isfinite(sigma):
            return cls.of(release, sigma)
        smallest = sigma / math.sqrt(release.parts)
        resolution = choose_resolution(release, sigma * whole._largest, smallest=smallest)
        return cls(sigma=sigma, resolution=resolution, rho=budget.rho, **cls.sizes(release), **own)

    @staticmethod
    def own(release: Release) -> dict[str, Any]:
        """Return what it states of messages beside what all mechanisms do."""
        power, buffers = release.options.strategy
        return {"power": power, "buffers": buffers, "lasts": release.lasts}

    @cached_property
    def correlation(self) -> "Correlation":
        """The strategy: columns of norm 1 serve streams better, and their sums a little less well."""
        # Whoever only wants to know what options there are need not import numpy.
        from mu2mpi.privacy.noise.correlation import Correlation

        return Correlation(self.power, self.buffers, self.rounds, not self.lasts, self.lasts)

    @property
    def _growth(self) -> float:
        """By what power of T sums of noise grow: (1 - x)^p has the coefficients of the p-th difference."""
        return float(self.rounds ** max(0.0, 0.5 - self.power)) * math.sqrt(1 + math.log(self.rounds))

    @property
    def _largest(self) -> float:
        """What no noise of a message passes, in units of the largest of sigma's draws: sums of |c^-1|."""
        sums = self.rounds ** (1 - self.power) if self.lasts else self.correlation.largest_norm
        return _SPREAD * sums

    @property
    def largest_noise(self) -> float:
        """The standard deviation of the noise of a message, or more."""
        return self.sigma * self._largest

    @property
    def fresh_sigma(self) -> float:
        """That of fresh noise in messages that are sums; of gradients, that of the strategy."""
        fresh = 2 * self.clip_norm * math.sqrt(self.rounds) / self.rho
        return fresh * self.heaping if self.lasts else self.sigma

    @property
    def heaping(self) -> float:
        """How much farther noise moves the sum of all messages than if each took back that of the last."""
        T = self.rounds
        return math.sqrt((T + 1) * (2 * T + 1) / (6 * T)) if self.lasts and not self.power else 1.0

    @property
    def _arithmetic(self) -> float:
        """The norm of all floating-point errors, in units of sigma: docs/background/privacy-proofs.md."""
        draws = math.sqrt(self.rounds * self.parts) * (math.sqrt(self.parameters) + math.sqrt(1400))
        return 2 * 4 * 2.0**-53 * self.correlation.lengths * _SPREAD * self._growth * draws

    @property
    def finest(self) -> float:
        """So many that the errors of all draws, which tell of one sample, take a small share of epsilon."""
        if not (self.is_noisy and math.isfinite(self.rho)):
            return FINEST
        draws = math.sqrt(self.rounds * self.parts * self.parameters)
        return min(FINEST, max(COARSEST, 2.0 ** math.floor(math.log2(2.0**33 * self.rho / draws))))

    def sigma_of(self, t: int) -> float:
        """Return the noise that is drawn for round t, to which that of rounds before is added."""
        return self.sigma * self.correlation.norm(t)

    def guarantee(self, rounds: int | None = None, draws: int = 1) -> Gaussian:
        """Return the rho of all messages, or of the first, for the sample of which they tell most."""
        number = self.rounds if rounds is None else rounds
        if number == 0:
            return Gaussian(0.0)
        if not self.is_noisy:
            return Gaussian(math.inf)
        strategy = self.correlation
        moved = 2 * self.clip_norm * strategy.sensitivity * (1 + _ARITHMETIC) * strategy.share(1, number)
        drawn = self.deviation(self.rounds, draws, largest=strategy.largest_norm)
        return Gaussian(moved / self.sigma, drawn)

    def share(self, first: int, last: int) -> float:
        """Return the share of rho that a sample spends which is in the stream from the first round on."""
        return self.correlation.share(first, last)
