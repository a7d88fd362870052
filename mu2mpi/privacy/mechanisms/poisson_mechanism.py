"""Gaussian mechanism with Poisson subsampling, as in DP-SGD.

Abadi et al., "Deep learning with differential privacy", 2016, accounted for by privacy loss distributions.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from mu2mpi.core.registry import register
from mu2mpi.privacy.accounting.pld import discretization_interval, import_pld
from mu2mpi.privacy.mechanisms._subsampled import SubsampledMechanism


@register
@dataclass(frozen=True, kw_only=True)
class PoissonMechanism(SubsampledMechanism):
    """Gaussian noise in sums over Poisson batches: each of n samples with probability batch_size / n."""

    name = subsampling = "poisson"

    @staticmethod
    @lru_cache(maxsize=4)
    def compose_pld(
        neighbours: str, multiplier: float, samples: int, batch_size: float, rounds: int, coarseness: int = 1
    ) -> Any:
        pld = import_pld().privacy_loss_distribution
        from dp_accounting.privacy_accountant import NeighboringRelation

        # Others are drawn independently of a sample: it may as well be absent as contribute zero.
        relation = "REPLACE_ONE" if neighbours == "replace" else "ADD_OR_REMOVE_ONE"
        one_round = pld.from_gaussian_mechanism(
            multiplier,
            value_discretization_interval=discretization_interval(rounds, coarseness),
            sampling_prob=batch_size / samples,
            neighboring_relation=NeighboringRelation[relation],
        )
        return one_round.self_compose(rounds)

    def range_errors(self) -> list[str]:
        errors = super().range_errors()
        if self.batch_size > self.samples:
            errors.append(f"batch_size = {self.batch_size!r} is more than samples = {self.samples:,}")
        return errors
