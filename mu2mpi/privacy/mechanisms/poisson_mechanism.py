"""Gaussian noise in sums over random samples, each in each of them with the same probability.

Abadi et al., "Deep learning with differential privacy", 2016, by the distribution of the privacy loss.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from mu2mpi.core.registry import register
from mu2mpi.privacy.accounting.pld import interval, losses_library
from mu2mpi.privacy.mechanisms._subsampled import ByLosses


@lru_cache(maxsize=4)
def _losses(multiplier: float, samples: int, drawn: float, rounds: int) -> Any:
    """Return the distribution of the privacy loss of all rounds, `multiplier` being sigma / C."""
    pld = losses_library().privacy_loss_distribution
    from dp_accounting.privacy_accountant import NeighboringRelation

    one = pld.from_gaussian_mechanism(
        multiplier,
        value_discretization_interval=interval(rounds),
        sampling_prob=drawn / samples,
        neighboring_relation=NeighboringRelation.REPLACE_ONE,
    )
    return one.self_compose(rounds)


@register
@dataclass(frozen=True, kw_only=True)
class PoissonReleases(ByLosses):
    """Of each of its n samples, a machine decides by itself: it is drawn with the probability drawn / n."""

    name = "poisson"
    losses = staticmethod(_losses)

    def out_of_range(self) -> list[str]:
        """Say with which of its numbers nothing can be computed."""
        found = super().out_of_range()
        if self.drawn > self.samples:
            found.append(f"drawn = {self.drawn!r} is more than samples = {self.samples:,}")
        return found
