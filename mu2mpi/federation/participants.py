"""Participants of every round of a run, and their participation counts."""

from functools import cached_property
from typing import NamedTuple

import numpy as np

from mu2mpi.core.arrays import BoolArray, IntArray
from mu2mpi.core.errors import InputError
from mu2mpi.federation.participation.schedule import ParticipationSchedule

MACHINE_ROUNDS_PER_CHUNK = 1 << 20  # machine-rounds generated per chunk
MAX_CHUNK_ROUNDS = 1 << 12  # largest number of rounds per chunk
MAX_MACHINE_ROUNDS = 1 << 32  # largest machine-rounds accepted: minutes of set-up
MIN_MACHINES_PER_ROUND = 64  # smallest machine-rounds charged per round, which has a fixed cost
MAX_MACHINES = 10**6  # largest number of machines accepted: some lists have an entry per machine


def rounds_per_chunk(machines: int) -> int:
    """Return the number of rounds per chunk, whose participation matrix is generated at once."""
    return max(1, min(MAX_CHUNK_ROUNDS, MACHINE_ROUNDS_PER_CHUNK // max(1, machines)))


def check_machine_rounds(machines: int, rounds: int) -> None:
    """Raise InputError if a participation schedule would take too long to generate."""
    if machines > MAX_MACHINES or max(machines, MIN_MACHINES_PER_ROUND) * rounds > MAX_MACHINE_ROUNDS:
        raise InputError(
            f"--participation and --budgets support at most {MAX_MACHINES:,} machines and "
            f"{MAX_MACHINE_ROUNDS:,} machine-rounds, got {machines:,} machines in {rounds:,} rounds. Use "
            "fewer --machines or --rounds."
        )


def max_fresh_rounds(schedule: ParticipationSchedule, samples: IntArray) -> int:
    """Return the largest number of rounds in which no machine participates more than `samples` times."""
    counts, max_rounds = np.zeros(schedule.machines, np.int64), schedule.max_rounds
    chunk_size = rounds_per_chunk(schedule.machines)
    for start in range(1, max_rounds + 1, chunk_size):
        check_machine_rounds(schedule.machines, start - 1)
        rounds = range(start, min(start + chunk_size, max_rounds + 1))
        cumulative = counts + np.cumsum(schedule.participation_matrix(rounds, max_rounds), axis=0)
        suffices = np.all(cumulative <= samples, axis=1)
        if not suffices.all():
            return start - 1 + int(np.argmin(suffices))
        counts = cumulative[-1]
    return max_rounds


class ParticipationChunk(NamedTuple):
    """Participations in consecutive rounds, sorted by round and then by machine."""

    rounds: range
    t: IntArray  # round of each participation
    machines: IntArray  # machine of each participation
    counts: IntArray  # the machine's number of participations until then, 1 for its first
    counts_before: IntArray  # number of participations before the chunk, shape (machines,)


class RunParticipation:
    """Participation of M machines in a run of T rounds, according to a schedule.

    Attributes
    ----------
    counts : ndarray of int64, shape (machines,)
        Number of rounds in which each machine takes part.
    squared_gaps : ndarray of int64, shape (machines,)
        Sum over a machine's rounds of the squared distance to its next one, or to T + 1 for the last.
    """

    def __init__(self, schedule: ParticipationSchedule, rounds: int) -> None:
        check_machine_rounds(schedule.machines, rounds)
        self.schedule, self.rounds, self.machines = schedule, rounds, schedule.machines
        last, self.squared_gaps = np.zeros((2, self.machines), np.int64)
        self._chunk = self._create_chunk(1, np.zeros(self.machines, np.int64))
        for start in range(1, rounds + 1, rounds_per_chunk(self.machines)):
            chunk = self.chunk(start)
            by_machine = np.argsort(chunk.machines, kind="stable")
            machine, t = chunk.machines[by_machine], chunk.t[by_machine]
            previous = np.where(np.diff(machine, prepend=-1) > 0, last[machine], np.roll(t, 1))
            np.add.at(self.squared_gaps, machine, np.where(previous > 0, t - previous, 0) ** 2)
            np.maximum.at(last, machine, t)
        self.squared_gaps += np.where(last > 0, rounds + 1 - last, 0) ** 2
        self.counts = self.counts_until(rounds)

    @cached_property
    def max_count(self) -> int:
        """Largest number of rounds in which one machine takes part."""
        return int(self.counts.max())

    def participation_matrix(self, rounds: range, machines: range) -> BoolArray:
        """Return whether each machine takes part in each round: booleans of shape (rounds, machines)."""
        return self.schedule.participation_matrix(rounds, self.rounds)[:, machines.start : machines.stop]

    def chunk(self, t: int) -> ParticipationChunk:
        """Return the chunk of rounds that contains round t; the latest chunk is cached."""
        if t < self._chunk.rounds.start:
            self._chunk = self._create_chunk(1, np.zeros(self.machines, np.int64))
        while t >= (start := self._chunk.rounds.stop):
            self._chunk = self._create_chunk(start, self.counts_until(start - 1))
        return self._chunk

    def _create_chunk(self, start: int, counts_before: IntArray) -> ParticipationChunk:
        rounds = range(start, min(start + rounds_per_chunk(self.machines), self.rounds + 1))
        matrix = self.schedule.participation_matrix(rounds, self.rounds)
        row, machine = np.nonzero(matrix)
        counts = np.cumsum(matrix, axis=0)[row, machine] + counts_before[machine]
        return ParticipationChunk(rounds, row + start, machine, counts, counts_before)

    def participants(self, t: int) -> tuple[IntArray, IntArray]:
        """Return the machines of round t in ascending order, and their participation counts until then."""
        chunk = self.chunk(t)
        in_round = slice(*np.searchsorted(chunk.t, (t, t + 1)))
        return chunk.machines[in_round], chunk.counts[in_round]

    def counts_until(self, t: int) -> IntArray:
        """Return the number of the first t rounds in which each machine takes part: shape (machines,)."""
        chunk = self.chunk(max(t, 1))
        return chunk.counts_before + np.bincount(chunk.machines[chunk.t <= t], minlength=self.machines)


class RoundParticipants:
    """Participants of each round among the machines of one rank."""

    def __init__(self, run: RunParticipation, machines: range) -> None:
        self._run_participation, self._machines = run, machines

    def counts_until(self, t: int) -> IntArray:
        """Return the number of the first t rounds in which each machine of the rank takes part."""
        return self._run_participation.counts_until(t)[self._machines.start : self._machines.stop]

    def participants(self, t: int) -> tuple[IntArray, IntArray]:
        """Return local indices of the participants of round t, and their participation counts until then."""
        machines, counts = self._run_participation.participants(t)
        hosted = slice(*np.searchsorted(machines, (self._machines.start, self._machines.stop)))
        return machines[hosted] - self._machines.start, counts[hosted]

    def last_known_round(self, t: int) -> int:
        """Return the last round whose participants are in memory with those of round t."""
        return self._run_participation.chunk(t).rounds.stop - 1
