"""Gaussian mechanism for sums of second moments, of which no two are opposite."""

from dataclasses import dataclass

from mu2mpi.core.registry import register
from mu2mpi.privacy.mechanisms.gaussian_mechanism import GaussianMechanism
from mu2mpi.privacy.released_sums import ReleasedSums


@register
@dataclass(frozen=True, kw_only=True)
class SecondMomentsMechanism(GaussianMechanism):
    """Gaussian noise in sums of terms w (z, s r) z^T, whose distance is at most 1.5 C.

    See docs/background/methods.md, AdaSSP. Rounding to the grid is part of the bound.
    """

    name = "second-moments"
    unit_sensitivities = {"replace": 1.5, "zero-out": 1.0}  # noqa: RUF012 - as in the base class

    @classmethod
    def supports(cls, released_sums: ReleasedSums) -> bool:
        return released_sums.are_second_moments and super().supports(released_sums)
