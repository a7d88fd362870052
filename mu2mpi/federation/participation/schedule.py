"""Base class of participation schedules: which machines take part in which round.

Schedules are imported to list and validate options: numpy waits until a run needs it.
"""

from abc import ABC, abstractmethod
from fractions import Fraction
from typing import ClassVar, NamedTuple

from mu2mpi.core.arrays import BoolArray, FloatArray, IntArray
from mu2mpi.core.lazy import NDArray, np
from mu2mpi.core.registry import OptionValue, default_name, known_names, lookup
from mu2mpi.core.suggestions import should_be_one_of
from mu2mpi.data.seed_stream import SeedStream

_PARTICIPATION_STREAM = 0x70617274  # separates random numbers of schedules from those of synthetic data


class Federation(NamedTuple):
    """Public facts about the machines, from which a schedule is built."""

    samples_per_machine: IntArray  # number of samples of each machine, shape (machines,)
    machine_names: tuple[str, ...]  # owners of the samples, or indices of the machines
    seed: int  # public seed of random schedules
    recorded_participation: BoolArray | None = None  # matrix of a result file, in place of input files


class ParticipationSchedule(OptionValue, ABC):
    """Base class of participation schedules of M machines.

    The option ``--participation`` is the name of a schedule, followed by a colon and a value if it has one.
    A schedule must depend on public facts alone, since the privacy guarantee does not cover it. Its
    constructor raises InputError if the value does not fit the federation, or a file cannot be used.
    """

    component_kind: ClassVar[str] = "participation"
    summary: ClassVar[str] = ""  # for the help
    is_default: ClassVar[bool] = False
    default_objective: ClassVar[str] = "machines"  # default of --objective
    needs_fresh_samples: ClassVar[bool] = False  # whether it is for methods with fresh samples only
    expected_share: Fraction | float | None = None  # of the machines in every round; None if rounds differ

    def __init__(self, option_value: str, federation: Federation) -> None:
        self.option_value, self.federation = option_value, federation

    @property
    def machines(self) -> int:
        """Number of machines M."""
        return len(self.federation.samples_per_machine)

    @classmethod
    def check_option_value(cls, option_value: str) -> None:
        """Raise ValueError unless the schedule accepts the value, the text behind the colon of the option."""
        if option_value:
            raise ValueError(f"should be {cls.option_syntax}, without a value")

    @classmethod
    def input_files(cls, option_value: str) -> tuple[str, ...]:
        """Return the names of the files that the schedule reads, as given in the option."""
        return ()

    @abstractmethod
    def participation_matrix(self, rounds: range, total_rounds: int) -> BoolArray:
        """Return the participation matrix of some rounds, from 1, of a run of `total_rounds`.

        Returns
        -------
        ndarray of bool, shape (len(rounds), machines)
            A row depends on its round alone, not on the other rounds of the call.
        """

    def participation_draws(self, rounds: range) -> "NDArray[np.uint64]":
        """Return public random 64-bit words of all machines in some rounds: shape (rounds, machines)."""
        stream = SeedStream(self.federation.seed, _PARTICIPATION_STREAM)
        first, count = rounds.start * self.machines, len(rounds) * self.machines
        return stream.integers(0, count, first).reshape(len(rounds), self.machines)

    @property
    def max_rounds(self) -> int:
        """Largest number of rounds that the schedule allows."""
        return 2**32 - 1

    def expected_participations(self, counts: IntArray, rounds: int) -> FloatArray:
        """Return each machine's expected participation count; its actual count if shares vary by round."""
        if self.expected_share is None:
            return counts.astype(np.float64)
        return np.full(self.machines, float(rounds * self.expected_share))


def parse_participation(text: str | None) -> tuple[type[ParticipationSchedule], str]:
    """Return schedule class and value of an option such as ``uniform:20``; the default for None."""
    name, _, value = (text or default_name("participation")).partition(":")
    return lookup("participation", name), value


def check_participation(text: str) -> str | None:
    """Validate a value of ``--participation`` and return it, None for the default; ValueError if invalid."""
    name, colon, value = text.partition(":")
    if name not in known_names("participation") or (colon and not value):
        forms = [lookup("participation", known).option_syntax for known in known_names("participation")]
        raise ValueError(should_be_one_of(text, forms))
    schedule: type[ParticipationSchedule] = lookup("participation", name)
    schedule.check_option_value(value)
    return None if schedule.is_default else text
