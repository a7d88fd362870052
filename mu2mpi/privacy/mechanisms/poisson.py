"""Gaussian noise in sums over random samples, each in each of them with the same probability.

Who is often left out is hidden better: Abadi et al., "Deep learning with differential privacy", 2016. Such
releases are no Gaussian mechanisms: epsilon at a delta follows from the distribution of the privacy loss.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from mu2mpi.privacy import losses
from mu2mpi.privacy.mechanisms.base import Subsampled
from mu2mpi.registry import register


def poisson_epsilon(C: float, samples: int, drawn: float, rounds: int, sigma: float, delta: float) -> float:
    """Return an epsilon of a sum in each round, of n terms of norm at most C, each there with a chance K / n.

    The privacy loss of all rounds together exceeds it as delta allows; it is rounded up. InputError says that
    dp-accounting, which computes it, is not installed.
    """
    return float(_poisson_losses(sigma / C, drawn / samples, rounds).get_epsilon_for_delta(delta))


@lru_cache(maxsize=4)
def _poisson_losses(multiplier: float, probability: float, rounds: int) -> Any:
    """Return the distribution of the privacy loss of all rounds, `multiplier` being sigma / C."""
    pld = losses.losses_library().privacy_loss_distribution
    from dp_accounting.privacy_accountant import NeighboringRelation

    one = pld.from_gaussian_mechanism(
        multiplier,
        value_discretization_interval=losses.interval(rounds),
        sampling_prob=probability,
        neighboring_relation=NeighboringRelation.REPLACE_ONE,
    )
    return one.self_compose(rounds)


def poisson_sigma(
    C: float, samples: int, drawn: float, rounds: int, epsilon: float, delta: float, reserve: float = 0.0
) -> float:
    """Return noise with which `poisson_epsilon` is at most epsilon: see `losses.least_multiplier`."""
    return C * _least_multiplier(samples, drawn, rounds, epsilon, delta, reserve)


@lru_cache(maxsize=32)
def _least_multiplier(
    samples: int, drawn: float, rounds: int, epsilon: float, delta: float, reserve: float
) -> float:
    def epsilon_of(multiplier: float, delta: float) -> float:
        return poisson_epsilon(1.0, samples, drawn, rounds, multiplier, delta)

    return losses.least_multiplier(epsilon_of, epsilon, delta, reserve)


@register
@dataclass(frozen=True, kw_only=True)
class PoissonReleases(Subsampled):
    """Of each of its n samples, a machine decides by itself: it is drawn with the probability drawn / n."""

    name, account = "poisson", "the distribution of the privacy loss, which dp-accounting computes"
    least_sigma, epsilon_by = staticmethod(poisson_sigma), staticmethod(poisson_epsilon)

    def out_of_range(self) -> list[str]:
        """Say with which of its numbers nothing can be computed, or no losses can be listed."""
        found = super().out_of_range()
        if self.drawn > self.samples:
            found.append(f"drawn = {self.drawn!r} is more than samples = {self.samples:,}")
        return found + losses.out_of_range(self.sigma, self.clip_norm)
