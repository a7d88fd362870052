"""Composable privacy guarantees: epsilon as a function of delta, and rho for Gaussian DP."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context
from functools import lru_cache, partial

from mu2mpi.privacy.accounting import gaussian_dp
from mu2mpi.privacy.noise.sampler_error import (
    NO_SAMPLER_ERROR,
    SAMPLER_BUDGET_SHARE,
    SamplerError,
    epsilon_with_sampler,
)


# Cached because a folder of results has few distinct epsilons, and each takes a search.
@lru_cache(maxsize=1024)
def rho_for_epsilon(epsilon: float, delta: float) -> float:
    """Largest GDP parameter rho within (epsilon, delta), minus the share reserved for the noise sampler."""
    unreserved = 1 - SAMPLER_BUDGET_SHARE
    return round_down_digits(gaussian_dp.rho_exact(unreserved * epsilon, unreserved * delta))


def round_down_digits(rho: float) -> float:
    """Round down to 8 significant digits, in which all processors and math libraries agree."""
    return float(Context(prec=8, rounding=ROUND_FLOOR).create_decimal(repr(rho)))


@dataclass(frozen=True)
class Budget:
    """Privacy budget of a run or of one machine, as GDP parameter rho and as (epsilon, delta)."""

    rho: float  # for mechanisms accounted for by Gaussian DP; infinite for no noise
    epsilon: float  # the budget at `delta`, for mechanisms accounted for by (epsilon, delta)-DP
    delta: float


class Guarantee(ABC):
    """Upper bound on the privacy loss of one sample; `+` is sequential composition."""

    rho: float | None = None  # GDP parameter: sensitivity / sigma of an equivalent Gaussian mechanism
    sampler_error: SamplerError = NO_SAMPLER_ERROR  # distance of the sampled noise from exact noise

    @abstractmethod
    def epsilon_exact_noise(self, delta: float) -> float:
        """Smallest known epsilon at `delta` for exactly distributed noise, without the sampler's error."""

    def epsilon(self, delta: float) -> float:
        """Epsilon at `delta` for sampled noise: the noise sampler's error is included."""
        return epsilon_with_sampler(self.epsilon_exact_noise, delta, self.sampler_error)

    def epsilon_paper(self, delta: float) -> float:
        """Epsilon at `delta` by the paper's Lemma 2.5, or `epsilon` where that does not apply."""
        return self.epsilon(delta)

    def __add__(self, other: "Guarantee") -> "Guarantee":
        return ComposedGuarantee((*_components(self), *_components(other)))


@dataclass(frozen=True)
class GaussianGuarantee(Guarantee):
    """rho-GDP, dominated by one Gaussian mechanism: (a, a rho^2 / 2)-RDP at every order a > 1."""

    rho: float
    sampler_error: SamplerError = NO_SAMPLER_ERROR

    def epsilon_exact_noise(self, delta: float) -> float:
        return gaussian_dp.epsilon_exact(self.rho, delta)

    def epsilon_paper(self, delta: float) -> float:
        return epsilon_with_sampler(partial(gaussian_dp.epsilon_paper, self.rho), delta, self.sampler_error)

    def __add__(self, other: Guarantee) -> Guarantee:
        if isinstance(other, GaussianGuarantee):
            error = self.sampler_error + other.sampler_error
            return GaussianGuarantee(math.hypot(self.rho, other.rho), error)
        return super().__add__(other)


@dataclass(frozen=True)
class PrivacyCurveGuarantee(Guarantee):
    """Guarantee given by a privacy curve delta -> epsilon, such as one computed from a PLD."""

    epsilon_at: Callable[[float], float]  # delta -> epsilon for exact noise
    sampler_error: SamplerError = NO_SAMPLER_ERROR

    def epsilon_exact_noise(self, delta: float) -> float:
        return self.epsilon_at(delta)


@dataclass(frozen=True)
class ComposedGuarantee(Guarantee):
    """Basic composition: epsilons and deltas add up, with delta split equally among the components."""

    components: tuple[Guarantee, ...]

    def epsilon_exact_noise(self, delta: float) -> float:
        delta_share = delta / len(self.components)
        return math.fsum(guarantee.epsilon_exact_noise(delta_share) for guarantee in self.components)

    def epsilon(self, delta: float) -> float:
        return math.fsum(guarantee.epsilon(delta / len(self.components)) for guarantee in self.components)


@dataclass(frozen=True)
class GroupGuarantee(Guarantee):
    """Group privacy: guarantee for replacing `group_size` samples at once, from that for one sample.

    (e, d)-DP for one sample implies (k e, (1 + exp(e) + ... + exp((k - 1) e)) d)-DP for k samples.
    """

    sample_guarantee: Guarantee  # for each single sample
    group_size: int  # k

    def epsilon_exact_noise(self, delta: float) -> float:
        return self._group_epsilon(self.sample_guarantee.epsilon_exact_noise, delta)

    def epsilon(self, delta: float) -> float:
        return self._group_epsilon(self.sample_guarantee.epsilon, delta)

    def _group_epsilon(self, epsilon_at: Callable[[float], float], delta: float) -> float:
        if self.group_size == 1:
            return epsilon_at(delta)
        k, log_target, max_log = self.group_size, -math.log(delta), -math.log(gaussian_dp.MIN_DELTA)

        def is_feasible(log_candidate: float) -> bool:
            epsilon = epsilon_at(math.exp(-log_candidate))
            terms = k if epsilon == 0 else math.expm1(-k * epsilon) / math.expm1(-epsilon)
            return (k - 1) * epsilon + math.log(terms) + 1e-12 <= log_candidate - log_target

        # Larger deltas per sample come first: epsilon falls with delta; feasibility is not monotone.
        grid = [log_target * (max_log / log_target) ** (n / 64) for n in range(65)]
        if (first := next((n for n, value in enumerate(grid) if is_feasible(value)), None)) is None:
            return math.inf
        low, high = grid[max(0, first - 1)], grid[first]
        for _ in range(30):
            middle = (low + high) / 2
            low, high = (low, middle) if is_feasible(middle) else (middle, high)
        return k * epsilon_at(math.exp(-high)) * gaussian_dp.ROUND_UP_FACTOR


def _components(guarantee: Guarantee) -> tuple[Guarantee, ...]:
    return guarantee.components if isinstance(guarantee, ComposedGuarantee) else (guarantee,)
