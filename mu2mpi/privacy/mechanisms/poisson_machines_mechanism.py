"""Gaussian mechanism with Poisson subsampling of machines, whose messages are hidden as a whole."""

from dataclasses import dataclass

from mu2mpi.core.registry import register
from mu2mpi.privacy.mechanisms.poisson_mechanism import PoissonMechanism


@register
@dataclass(frozen=True, kw_only=True)
class PoissonMachinesMechanism(PoissonMechanism):
    """Gaussian noise in sums over sampled machines, each in a round with probability batch_size / samples.

    A message has at most the clipping norm, whatever the samples of its machine: McMahan et al., "Learning
    differentially private recurrent language models", 2018.
    """

    name, unit, privacy_unit = "poisson-machines", "machine", "one machine with all its samples"
    subsampling = name

    @property
    def accounting_note(self) -> str:
        accountant = "by the distribution of the privacy loss, which dp-accounting computes"
        share = self.batch_size / self.samples
        return f"{accountant}. A machine takes part in a round with probability {share:.6g}, in secret."
