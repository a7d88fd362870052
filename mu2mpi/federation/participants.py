"""Participants of every round of a run, and their participation counts."""

from collections.abc import Iterator
from functools import cached_property

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


def _participation_chunks(
    schedule: ParticipationSchedule, rounds: range, total_rounds: int
) -> Iterator[tuple[range, BoolArray]]:
    """Yield chunks of rounds with their participation matrices; InputError after too many machine-rounds."""
    chunk_size = rounds_per_chunk(schedule.machines)
    for start in range(0, len(rounds), chunk_size):
        chunk = rounds[start : start + chunk_size]
        check_machine_rounds(schedule.machines, chunk.start - 1)
        yield chunk, schedule.participation_matrix(chunk, total_rounds)


def max_fresh_rounds(schedule: ParticipationSchedule, samples: IntArray) -> int:
    """Return the largest number of rounds in which no machine participates more than `samples` times."""
    counts, max_rounds = np.zeros(schedule.machines, np.int64), schedule.max_rounds
    for rounds, matrix in _participation_chunks(schedule, range(1, max_rounds + 1), max_rounds):
        cumulative = counts + np.cumsum(matrix, axis=0)
        suffices = np.all(cumulative <= samples, axis=1)
        if not suffices.all():
            return rounds.start - 1 + int(np.argmin(suffices))
        counts = cumulative[-1]
    return max_rounds


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
        counts, last, self.squared_gaps = np.zeros((3, self.machines), np.int64)
        for chunk, matrix in _participation_chunks(schedule, range(1, rounds + 1), rounds):
            counts = counts + matrix.sum(axis=0)
            # Participations sorted by machine, and by round for each machine.
            machine, row = np.nonzero(matrix.T)
            t = row + chunk.start
            is_first = np.diff(machine, prepend=-1) > 0
            gaps = t - np.where(is_first, last[machine], np.roll(t, 1))
            gaps[is_first & (last[machine] == 0)] = 0
            np.add.at(self.squared_gaps, machine, gaps**2)
            np.maximum.at(last, machine, t)
        self.squared_gaps += np.where(last > 0, rounds + 1 - last, 0) ** 2
        self.counts = counts
        self._cached_counts = rounds, counts

    @cached_property
    def max_count(self) -> int:
        """Largest number of rounds in which one machine takes part."""
        return int(self.counts.max())

    def participation_matrix(self, rounds: range, machines: range) -> BoolArray:
        """Return whether each machine takes part in each round: booleans of shape (rounds, machines)."""
        return self.schedule.participation_matrix(rounds, self.rounds)[:, machines.start : machines.stop]

    def counts_until(self, t: int) -> IntArray:
        """Return the number of the first t rounds in which each machine takes part: shape (machines,)."""
        if t == self.rounds:
            return self.counts
        done, counts = self._cached_counts
        if done > t:
            done, counts = 0, np.zeros(self.machines, np.int64)
        for _, matrix in _participation_chunks(self.schedule, range(done + 1, t + 1), self.rounds):
            counts = counts + matrix.sum(axis=0)
        self._cached_counts = t, counts
        return counts


class RoundParticipants:
    """Participants of each round among the machines of one rank, with a chunk of rounds cached."""

    def __init__(self, run: RunParticipation, machines: range) -> None:
        self._run_participation, self._machines = run, machines
        self._rounds, self._counts = range(1, 1), np.zeros((1, len(machines)), np.int64)

    def counts_until(self, t: int) -> IntArray:
        """Return the number of the first t rounds in which each machine of the rank takes part."""
        return self._run_participation.counts_until(t)[self._machines.start : self._machines.stop]

    def participants(self, t: int) -> tuple[IntArray, IntArray]:
        """Return local indices of the participants of round t, and their participation counts until then."""
        if t not in self._rounds:
            before = self._counts[-1] if t == self._rounds.stop else self.counts_until(t - 1)
            chunk = rounds_per_chunk(self._run_participation.machines)
            self._rounds = range(t, min(t + chunk, self._run_participation.rounds + 1))
            self._matrix = self._run_participation.participation_matrix(self._rounds, self._machines)
            self._counts = before + np.cumsum(self._matrix, axis=0)
        row = t - self._rounds.start
        indices = np.flatnonzero(self._matrix[row])
        return indices, self._counts[row, indices]
