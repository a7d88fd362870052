"""Full participation of all machines in all rounds."""

from mu2mpi.core.arrays import BoolArray
from mu2mpi.core.lazy import np
from mu2mpi.core.registry import register
from mu2mpi.federation.participation.schedule import ParticipationSchedule


@register
class FullParticipation(ParticipationSchedule):
    """Participation of every machine in every round."""

    name = "all"
    summary = "every machine in every round"
    is_default = True
    expected_share = 1.0

    def participation_matrix(self, rounds: range, total_rounds: int) -> BoolArray:
        return np.ones((len(rounds), self.machines), bool)
