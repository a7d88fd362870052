"""Gaussian mechanism on batches sampled with replacement, accounted for by privacy loss distributions."""

from dataclasses import dataclass
from typing import Any

from mu2mpi.core.registry import register
from mu2mpi.privacy.mechanisms._subsampled import PldMechanism
from mu2mpi.privacy.mechanisms.replacement_mechanism import ReplacementMechanism, with_replacement_epsilon
from mu2mpi.privacy.release import Release


@register
@dataclass(frozen=True, kw_only=True)
class ReplacementExactMechanism(PldMechanism):
    """Sums over batches of K draws with replacement from a machine's n samples."""

    name = "replacement-exact"
    samples_used = ReplacementMechanism.samples_used

    @staticmethod
    def compose_pld(multiplier: float, samples: int, batch_size: float, rounds: int) -> Any:
        """Return the PLD of all rounds for noise multiplier sigma / C."""
        # Imported here so that listing the options of mechanisms does not import numpy.
        from mu2mpi.privacy.accounting.replacement_pld import compose_replacement_pld

        return compose_replacement_pld(multiplier, samples, batch_size, rounds)

    @classmethod
    def supports(cls, release: Release) -> bool:
        """Whether batches are sampled with replacement."""
        return release.subsampling == "replacement"

    @classmethod
    def initial_multiplier(
        cls, samples: int, batch_size: float, rounds: int, epsilon: float, delta: float
    ) -> float:
        """Noise multiplier of the closed-form theorem: far too large, but fast to evaluate."""
        if epsilon == 0:
            return 1.0
        return with_replacement_epsilon(1.0, samples, batch_size, rounds, epsilon, delta)
