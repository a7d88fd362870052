"""Gaussian mechanism on batches sampled with replacement, accounted for by privacy loss distributions."""

from dataclasses import dataclass

from mu2mpi.core.registry import register
from mu2mpi.privacy.accounting.replacement_pld import compose_replacement_pld
from mu2mpi.privacy.mechanisms._subsampled import PldMechanism
from mu2mpi.privacy.mechanisms.replacement_mechanism import ReplacementMechanism


@register
@dataclass(frozen=True, kw_only=True)
class ReplacementExactMechanism(PldMechanism):
    """Gaussian noise in sums over K draws with replacement from n samples, accounted for by PLDs."""

    name, subsampling = "replacement-exact", "replacement"
    max_samples_used = ReplacementMechanism.max_samples_used
    compose_pld = staticmethod(compose_replacement_pld)
