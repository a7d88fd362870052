"""Which of its samples each machine uses in which round."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["Batches", "Fresh", "Poisson", "Sampling", "Taken", "WithReplacement", "users"]


def users(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return whose each sample is, as a number among some machines from 0, given `sizes` as in `Taken`."""
    return np.repeat(np.tile(np.arange(sizes.shape[1]), len(sizes)), sizes.ravel())


class Taken(NamedTuple):
    """What some machines use in some rounds, round by round and in each machine by machine.

    `places` are numbers of samples among those of their own machines, from 0, shape (samples,), and `sizes`
    how many each machine uses in each round, shape (rounds, machines).
    """

    places: NDArray[np.int64]
    sizes: NDArray[np.int64]

    @property
    def machines(self) -> NDArray[np.int64]:
        """Whose samples they are, as numbers among these machines from 0, shape (samples,)."""
        return users(self.sizes)


class Sampling(Protocol):
    """How the samples of a machine are spread over the rounds; the same for every machine."""

    @property
    def chance(self) -> str:
        """How samples are drawn at random; empty if each is used once, in a round that is known."""

    @property
    def owned(self) -> int:
        """How many samples a machine needs to have, n."""

    @property
    def most(self) -> int:
        """The largest number of samples that a machine can use in one round."""

    @property
    def words(self) -> str:
        """What is left to chance, in a few words."""

    def size(self, t: int) -> float:
        """Return how many samples a machine is expected to use in round t."""

    def drawn(self, t: int) -> float:
        """Return how many it is expected to use in rounds 1 .. t, each as often as it is used."""

    def used(self, t: int) -> int:
        """Return how many of its samples it can have used in rounds 1 .. t, each counted once."""

    def take(self, key: bytes, machines: range, rounds: range) -> Taken:
        """Return what some machines, numbered from 0, use in consecutive rounds, numbered from 1.

        Random choices follow from a key of 32 bytes; those of a machine in a round depend on nothing else
        but the two.
        """


@dataclass(frozen=True)
class Fresh:
    """One sample in each of so many rounds, each used once."""

    owned: int
    most: ClassVar[int] = 1
    chance: ClassVar[str] = ""
    words: ClassVar[str] = ""

    def size(self, t: int) -> float:
        """Return 1."""
        return 1

    def used(self, t: int) -> int:
        """Return t."""
        return t

    drawn = used

    def take(self, key: bytes, machines: range, rounds: range) -> Taken:
        """Return the t-th sample of each machine for round t."""
        places = np.repeat(np.arange(rounds.start - 1, rounds.stop - 1), len(machines))
        return Taken(places, np.ones((len(rounds), len(machines)), np.int64))


@dataclass(frozen=True)
class Batches:
    """A batch in each round, each sample used once; `ends` are how many are used by the end of each."""

    ends: tuple[int, ...]
    chance: ClassVar[str] = ""
    words: ClassVar[str] = ""

    @classmethod
    def of(cls, sizes: Iterable[int]) -> Self:
        """Return batches of these sizes."""
        return cls(tuple(accumulate(map(int, sizes))))

    @property
    def owned(self) -> int:
        """All batches together."""
        return self.ends[-1]

    @property
    def most(self) -> int:
        """The largest batch."""
        return int(np.diff(self.ends, prepend=0).max())

    def size(self, t: int) -> float:
        """Return the size of the batch of round t."""
        return self.used(t) - self.used(t - 1)

    def used(self, t: int) -> int:
        """Return the size of the first t batches together."""
        return self.ends[t - 1] if t else 0

    drawn = used

    def take(self, key: bytes, machines: range, rounds: range) -> Taken:
        """Return the batches of some rounds, which follow each other in each machine's samples."""
        batches = [np.arange(self.used(t - 1), self.used(t)) for t in rounds]
        places = np.concatenate([np.empty(0, np.int64), *(np.tile(b, len(machines)) for b in batches)])
        sizes = np.array([len(b) for b in batches], np.int64)
        return Taken(places, np.repeat(sizes[:, np.newaxis], len(machines), axis=1))


@dataclass(frozen=True)
class WithReplacement:
    """K samples in each round (`most`), each drawn uniformly from all n that the machine has (`owned`)."""

    owned: int
    most: int
    chance: ClassVar[str] = "replacement"

    @property
    def words(self) -> str:
        """How many of how many."""
        return f"K = {self.most} of n = {self.owned} samples"

    def size(self, t: int) -> float:
        """Return K."""
        return self.most

    def drawn(self, t: int) -> float:
        """Return K t."""
        return self.most * t

    def used(self, t: int) -> int:
        """Return K t, or n where that is less."""
        return min(self.owned, self.most * t)

    def take(self, key: bytes, machines: range, rounds: range) -> Taken:
        """Return K samples for each machine and round."""
        from mu2mpi.federation.draws import draw_uniformly

        places = draw_uniformly(key, machines, rounds, self.owned, self.most)
        return Taken(places.ravel(), np.full(places.shape[:2], self.most, np.int64))


@dataclass(frozen=True)
class Poisson:
    """Each of n samples in each round with the same probability q, whatever becomes of all others."""

    owned: int
    probability: float
    chance: ClassVar[str] = "poisson"

    @property
    def most(self) -> int:
        """All samples."""
        return self.owned

    @property
    def words(self) -> str:
        """How likely."""
        return f"q = {self.probability:.3g}"

    def size(self, t: int) -> float:
        """Return q n."""
        return self.probability * self.owned

    def drawn(self, t: int) -> float:
        """Return q n t."""
        return self.size(t) * t

    def used(self, t: int) -> int:
        """Return n, once there was a round."""
        return self.owned if t else 0

    def take(self, key: bytes, machines: range, rounds: range) -> Taken:
        """Return those samples of each machine and round of which the random word is small enough."""
        from mu2mpi.federation.draws import draw_independently

        # Below 2^64 q, and never with a larger probability than q.
        threshold = math.floor(math.ldexp(self.probability, 64))
        if threshold >> 64:
            sizes = np.full((len(rounds), len(machines)), self.owned, np.int64)
            return Taken(np.tile(np.arange(self.owned), sizes.size), sizes)
        return Taken(*draw_independently(key, machines, rounds, self.owned, threshold))
