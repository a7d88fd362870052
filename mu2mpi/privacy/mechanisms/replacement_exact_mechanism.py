"""Gaussian noise in sums over samples drawn with replacement, by the distribution of the privacy loss."""

from dataclasses import dataclass
from typing import Any

from mu2mpi.core.registry import register
from mu2mpi.privacy.mechanisms._subsampled import ByLosses
from mu2mpi.privacy.mechanisms.replacement_mechanism import ReplacementReleases, with_replacement_epsilon
from mu2mpi.privacy.release import Release


@register
@dataclass(frozen=True, kw_only=True)
class ExactReplacement(ByLosses):
    """Each message sums up K of a machine's n samples, drawn with replacement."""

    name = "replacement-exact"
    samples_used = ReplacementReleases.samples_used

    @staticmethod
    def losses(multiplier: float, samples: int, drawn: float, rounds: int) -> Any:
        """Return the distribution of the privacy loss of all rounds."""
        # Listing the options of mechanisms must not import numpy.
        from mu2mpi.privacy.accounting.replacement_pld import replacement_losses

        return replacement_losses(multiplier, samples, drawn, rounds)

    @classmethod
    def accounts_for(cls, release: Release) -> bool:
        """Return whether samples are drawn with replacement."""
        return release.chance == "replacement"

    @classmethod
    def start(cls, samples: int, drawn: float, rounds: int, epsilon: float, delta: float) -> float:
        """Return the noise of the theorem, which is far too much, and soon computed with."""
        if epsilon == 0:
            return 1.0
        return with_replacement_epsilon(1.0, samples, drawn, rounds, epsilon, delta)
