"""Participation as recorded in a trace file."""

from pathlib import Path

from mu2mpi.core.arrays import BoolArray
from mu2mpi.core.errors import InputError
from mu2mpi.core.options import check_file_name
from mu2mpi.core.registry import register
from mu2mpi.federation.participation.schedule import Federation, ParticipationSchedule


@register
class RecordedParticipation(ParticipationSchedule):
    """Participation of machines in rounds as recorded in a trace file: matrix (rounds, machines)."""

    name, option_syntax = "trace", "trace:FILE"
    summary = "as recorded in a file of rounds and machines"

    def __init__(self, option_value: str, federation: Federation) -> None:
        """Read the trace file, unless a result file holds its participation matrix."""
        from mu2mpi.data.machine_files import read_participation_trace

        super().__init__(option_value, federation)
        matrix, path = federation.recorded_participation, Path(option_value).expanduser()
        self.matrix = read_participation_trace(path, federation.machine_names) if matrix is None else matrix

    @classmethod
    def check_option_value(cls, option_value: str) -> None:
        if not option_value:
            raise ValueError("should be trace:FILE with the name of a file, such as trace:seen.csv")
        check_file_name(option_value)

    @classmethod
    def input_files(cls, option_value: str) -> tuple[str, ...]:
        return (option_value,)

    def participation_matrix(self, rounds: range, total_rounds: int) -> BoolArray:
        if total_rounds > self.max_rounds:
            raise InputError(
                f"--rounds must be at most {self.max_rounds:,} (rounds of the participation trace), got "
                f"{total_rounds:,}. Use fewer rounds."
            )
        return self.matrix[rounds.start - 1 : rounds.stop - 1]

    @property
    def max_rounds(self) -> int:
        return len(self.matrix)
