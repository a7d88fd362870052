"""Participation in proportion to the number of samples."""

from mu2mpi.core.arrays import BoolArray
from mu2mpi.core.lazy import np
from mu2mpi.core.registry import register
from mu2mpi.federation.participation.schedule import ParticipationSchedule


@register
class ProportionalParticipation(ParticipationSchedule):
    """Participation of each machine in one round per sample, evenly spread over the run.

    Machine i takes part in N_i rounds, its number of samples; in fewer if the largest machine has more
    samples than there are rounds, but in at least one.
    """

    name = "by-size"
    summary = "each machine once per sample"
    default_objective = "samples"
    needs_fresh_samples = True

    def participation_matrix(self, rounds: range, total_rounds: int) -> BoolArray:
        """Return the participation matrix, true where the quota floor((t N_i + shift_i) / T) increases."""
        T, sizes = total_rounds, self.federation.samples_per_machine
        quotas = np.minimum(sizes, -(-sizes * T // max(T, self.max_rounds)))
        shifts = (self.participation_draws(range(1)) % np.uint64(T)).astype(np.int64)
        t = np.arange(rounds.start - 1, rounds.stop)[:, np.newaxis]
        return np.diff((t * quotas + shifts) // T, axis=0) > 0

    @property
    def max_rounds(self) -> int:
        return int(self.federation.samples_per_machine.max())
