"""Which machines take part in which round, in public: by randomness, by size, or as it was measured."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mu2mpi.core.errors import InputError
from mu2mpi.data.streams import SeedStream, unit_uniforms

Integers = NDArray[np.int64]
Present = NDArray[np.bool_]

_STREAM = 0x70617274  # of the public seed, unlike those of made-up data
# Machines times rounds that are looked at in one go, and at all: the latter takes minutes. Fewer machines
# than the fewest count as so many: rounds in which hardly anybody is there come to no end.
AT_ONCE, MOST, _FEWEST = 1 << 20, 1 << 32, 64
MOST_MACHINES = 10**6  # so many that lists of them are no burden
# Rounds that are looked at in one go, and numbers of how often machines were there that are kept
_MOST_ROUNDS, MOST_COUNTS = 1 << 12, 1 << 24


def rounds_at_once(machines: int) -> int:
    """Return in how many rounds it is looked at in one go who of so many machines is there."""
    return max(1, min(_MOST_ROUNDS, AT_ONCE // max(1, machines)))


def check_size(machines: int, rounds: int) -> None:
    """Raise InputError if it would take too long to see who is there when."""
    if machines > MOST_MACHINES or max(machines, _FEWEST) * rounds > MOST:
        raise InputError(
            f"{machines:,} machines in {rounds:,} rounds are too many to know who is there when; give fewer, "
            "or leave out --participation and --budgets"
        )


def random_words(seed: int, rounds: range, machines: int) -> NDArray[np.uint64]:
    """Return a public random word of each machine in each of some rounds: shape (rounds, machines)."""
    words = SeedStream(seed, _STREAM).words(0, len(rounds) * machines, rounds.start * machines)
    return words.reshape(len(rounds), machines)


class Participation(ABC):
    """Who is there in which of any number of rounds."""

    machines: int

    @abstractmethod
    def present(self, rounds: range, of: int) -> Present:
        """Return who takes part in some of so many rounds, numbered from 1: shape (rounds, machines)."""

    def longest(self, samples: Integers) -> int:
        """Return for how many rounds nobody needs more than its samples, one a round: shape (machines,)."""
        done, used = 0, np.zeros(self.machines, np.int64)
        each = rounds_at_once(self.machines)
        most = self.most_rounds()
        while done < most:
            check_size(self.machines, done)
            block = range(done + 1, min(done + each, most) + 1)
            counts = used + np.cumsum(self.present(block, most), axis=0)
            enough = np.all(counts <= samples, axis=1)
            if not enough.all():
                return done + int(np.argmin(enough))
            done, used = block[-1], counts[-1]
        return done

    def most_rounds(self) -> int:
        """Return how many rounds there are at most where samples allow more."""
        return 2**32 - 1

    def expected(self, attended: Integers, rounds: int) -> NDArray[np.float64]:
        """Return in how many rounds each is expected; if nothing is drawn, in how many it is there."""
        return attended.astype(np.float64)


@dataclass(frozen=True)
class Everybody(Participation):
    """All machines in each round."""

    machines: int

    def present(self, rounds: range, of: int) -> Present:
        """Return that all are there."""
        return np.ones((len(rounds), self.machines), bool)


@dataclass(frozen=True)
class Uniform(Participation):
    """A number of machines in each round, any as likely as the others."""

    machines: int
    number: int
    seed: int

    def present(self, rounds: range, of: int) -> Present:
        """Return those with the smallest of random words."""
        words = random_words(self.seed, rounds, self.machines)
        found = np.zeros(words.shape, bool)
        smallest = np.argpartition(words, self.number - 1, axis=1)[:, : self.number]
        np.put_along_axis(found, smallest, True, axis=1)
        return found

    def expected(self, attended: Integers, rounds: int) -> NDArray[np.float64]:
        """Return T m / M."""
        return np.full(self.machines, rounds * self.number / self.machines)


@dataclass(frozen=True)
class Bernoulli(Participation):
    """Each machine in each round with the same probability, whatever the others do."""

    machines: int
    probability: float
    seed: int

    def present(self, rounds: range, of: int) -> Present:
        """Return those of which the random number is small enough."""
        found: Present = unit_uniforms(random_words(self.seed, rounds, self.machines)) < self.probability
        return found

    def expected(self, attended: Integers, rounds: int) -> NDArray[np.float64]:
        """Return T p."""
        return np.full(self.machines, rounds * self.probability)


@dataclass(frozen=True, eq=False)
class BySize(Participation):
    """Each machine in as many rounds as it has samples, evenly spread; in fewer proportionally, but once."""

    sizes: Integers
    seed: int

    @property
    def machines(self) -> int:  # type: ignore[override]
        """One a size."""
        return len(self.sizes)

    def present(self, rounds: range, of: int) -> Present:
        """Return whose count goes up: the whole part of (t N_i + shift) / T."""
        largest = int(self.sizes.max())
        times = np.minimum(self.sizes, -(-self.sizes * of // max(of, largest)))
        shifts = (random_words(self.seed, range(1), self.machines) % np.uint64(of)).astype(np.int64)
        t = np.arange(rounds.start - 1, rounds.stop)[:, np.newaxis]
        return np.diff((t * times + shifts) // of, axis=0) > 0

    def most_rounds(self) -> int:
        """Return the largest size."""
        return int(self.sizes.max())


@dataclass(frozen=True, eq=False)
class Trace(Participation):
    """As it was measured: `seen`, of shape (rounds, machines)."""

    seen: Present

    @property
    def machines(self) -> int:  # type: ignore[override]
        """One a column."""
        return int(self.seen.shape[1])

    def present(self, rounds: range, of: int) -> Present:
        """Return the rows of these rounds; InputError if there are more than were measured."""
        if of > len(self.seen):
            raise InputError(f"the trace has {len(self.seen)} rounds; give at most --rounds {len(self.seen)}")
        return self.seen[rounds.start - 1 : rounds.stop - 1]

    def most_rounds(self) -> int:
        """Return how many were measured."""
        return len(self.seen)


class Attendance:
    """Who takes part in each of T rounds, and how often until then.

    `squares` are the sums of the squares of gaps from each time of a machine to its next, or to the end.
    """

    def __init__(self, participation: Participation, rounds: int) -> None:
        check_size(participation.machines, rounds)
        self.participation, self.rounds, self.machines = participation, rounds, participation.machines
        each = rounds_at_once(self.machines)
        # Counts are kept after every so many rounds, and those between counted anew.
        self._apart = each * -(-rounds * self.machines // (each * MOST_COUNTS))
        self._kept = []
        counts, last, self.squares = np.zeros((3, self.machines), np.int64)
        for block, present in self._blocks(1, rounds):
            if (block.start - 1) % self._apart == 0:
                self._kept.append(counts)
            counts = counts + present.sum(axis=0)
            # By machine, and in each by round.
            machine, place = np.nonzero(present.T)
            t = place + block.start
            is_first = np.diff(machine, prepend=-1) > 0
            gaps = t - np.where(is_first, last[machine], np.roll(t, 1))
            gaps[is_first & (last[machine] == 0)] = 0
            np.add.at(self.squares, machine, gaps**2)
            np.maximum.at(last, machine, t)
        self.squares += np.where(last > 0, rounds + 1 - last, 0) ** 2
        self.attended = counts
        self._last = rounds, counts

    @property
    def every(self) -> range:
        """The numbers of all rounds."""
        return range(1, self.rounds + 1)

    def _blocks(self, first: int, last: int) -> Iterator[tuple[range, Present]]:
        each = rounds_at_once(self.machines)
        for start in range(first, last + 1, each):
            block = range(start, min(start + each, last + 1))
            yield block, self.participation.present(block, self.rounds)

    def present(self, rounds: range, machines: range) -> Present:
        """Return who of some machines takes part in some rounds: shape (rounds, machines)."""
        return self.participation.present(rounds, self.rounds)[:, machines.start : machines.stop]

    def until(self, t: int) -> Integers:
        """Return in how many of the first t rounds each machine takes part, shape (machines,)."""
        place = min(t // self._apart, len(self._kept) - 1)
        near = [(place * self._apart, self._kept[place]), self._last]
        done, counts = max((known for known in near if known[0] <= t), key=lambda known: known[0])
        for _, present in self._blocks(done + 1, t):
            counts = counts + present.sum(axis=0)
        self._last = t, counts
        return counts

    @cached_property
    def most(self) -> int:
        """In how many rounds the machine takes part that does so most often."""
        return int(self.attended.max())


class Roll:
    """Who of some machines is there in a round, and for the how-manieth time; a chunk of rounds is cached."""

    def __init__(self, attendance: Attendance, machines: range) -> None:
        self._attendance, self._machines = attendance, machines
        self._each = rounds_at_once(attendance.machines)
        self._block, self._counts = range(1, 1), np.zeros((1, len(machines)), np.int64)

    def until(self, t: int) -> Integers:
        """Return how often each of these machines was there in the first t rounds."""
        return self._attendance.until(t)[self._machines.start : self._machines.stop]

    def call(self, t: int) -> tuple[Integers, Integers]:
        """Return who is there in round t, as numbers among these machines, and how often it was by then."""
        if t not in self._block:
            before = self._counts[-1] if t == self._block.stop else self.until(t - 1)
            self._block = range(t, min(t + self._each, self._attendance.rounds + 1))
            self._present = self._attendance.present(self._block, self._machines)
            self._counts = before + np.cumsum(self._present, axis=0)
        there = np.flatnonzero(self._present[t - self._block.start])
        return there, self._counts[t - self._block.start, there]
