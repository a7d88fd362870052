"""Which of its samples each machine uses in which round."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar, NamedTuple, Self

from mu2mpi.core.lazy import NDArray, np


class Taken(NamedTuple):
    """What some machines use in some rounds, round by round and in each machine by machine.

    `places` number samples of each machine; `sizes` are how many it uses, shape (rounds, machines).
    """

    places: "NDArray[np.int64]"
    sizes: "NDArray[np.int64]"


@dataclass(frozen=True)
class Sampling(ABC):
    """How the samples of a machine are spread over T rounds; the same for every machine."""

    owned: int  # n, how many it needs
    rounds: int  # T
    most: int = 1  # how many it uses in one round
    chance: ClassVar[str] = ""  # how they are drawn at random, if they are
    is_fresh: ClassVar[bool] = False  # whether machines with more samples may take part in more rounds

    @property
    def is_same(self) -> bool:
        """Whether each round uses all of them."""
        return False

    @property
    def words(self) -> str:
        """What is left to chance, in a few words."""
        return ""

    def size(self, t: int) -> float:
        """Return how many samples a machine is expected to use in round t: by default the most."""
        return self.most

    def used(self, t: int) -> int:
        """Return how many of its samples it can have used in rounds 1 .. t, each counted once."""
        return min(self.owned, self.most * t)

    def drawn(self, t: int) -> float:
        """Return how many it is expected to use in rounds 1 .. t, each as often as it is used."""
        return self.size(t) * t if self.chance else self.used(t)

    def touches(self, t: int) -> int:
        """Return in how many of rounds 1 .. t one sample can be: once, if that is not left to chance."""
        return t if self.chance else 1

    @abstractmethod
    def take(self, key: bytes, machines: range, rounds: range) -> Taken:
        """Return what some machines, from 0, use in consecutive rounds, from 1, given a key of 32 bytes."""


class Fresh(Sampling):
    """One sample in each round, each used once; `owned` is that of the machine with most rounds."""

    is_fresh = True

    def used(self, t: int) -> int:
        """Return t."""
        return t

    def take(self, key: bytes, machines: range, rounds: range) -> Taken:
        """Return the t-th sample of each machine for round t."""
        places = np.repeat(np.arange(rounds.start - 1, rounds.stop - 1), len(machines))
        return Taken(places, np.ones((len(rounds), len(machines)), np.int64))


@dataclass(frozen=True)
class Batches(Sampling):
    """A batch in each round, each sample used once; `ends` are how many are used by the end of each."""

    ends: tuple[int, ...] = field(kw_only=True)

    @classmethod
    def until(cls, ends: tuple[int, ...]) -> Self:
        """Return the batches after which so many samples are used."""
        most = max(last - first for first, last in pairwise((0, *ends)))
        return cls(ends[-1], len(ends), most, ends=ends)

    def size(self, t: int) -> float:
        """Return the size of the batch of round t."""
        return self.used(t) - self.used(t - 1)

    def used(self, t: int) -> int:
        """Return the size of the first t batches together."""
        return self.ends[t - 1] if t else 0

    def take(self, key: bytes, machines: range, rounds: range) -> Taken:
        """Return the batches of some rounds, which follow each other in each machine's samples."""
        batches = [np.arange(self.used(t - 1), self.used(t)) for t in rounds]
        places = np.concatenate([np.empty(0, np.int64), *(np.tile(b, len(machines)) for b in batches)])
        sizes = np.array([len(b) for b in batches], np.int64)
        return Taken(places, np.repeat(sizes[:, np.newaxis], len(machines), axis=1))


class Cyclic(Sampling):
    """K samples in each round (`most`), pass after pass over all n that the machine has (`owned`)."""

    @property
    def is_same(self) -> bool:
        """Whether each round uses all of them."""
        return self.most == self.owned

    def drawn(self, t: int) -> int:
        """Return K t."""
        return self.most * t

    def touches(self, t: int) -> int:
        """Return K t / n, rounded up: in no round is one twice, as K is at most n."""
        return -(-self.most * t // self.owned)

    def take(self, key: bytes, machines: range, rounds: range) -> Taken:
        """Return the K samples behind those of the round before, the first behind the last."""
        places = np.arange(self.most * (rounds.start - 1), self.most * (rounds.stop - 1)) % self.owned
        sizes = np.full((len(rounds), len(machines)), self.most, np.int64)
        of_rounds = places.reshape(len(rounds), 1, self.most)
        return Taken(np.tile(of_rounds, (1, len(machines), 1)).ravel(), sizes)


class WithReplacement(Sampling):
    """K samples in each round (`most`), each drawn uniformly from all n that the machine has (`owned`)."""

    chance = "replacement"

    @property
    def words(self) -> str:
        """How many of how many."""
        return f"K = {self.most} of n = {self.owned} samples"

    def take(self, key: bytes, machines: range, rounds: range) -> Taken:
        """Return K samples for each machine and round."""
        from mu2mpi.federation.subsampling import draw_uniformly

        places = draw_uniformly(key, machines, rounds, self.owned, self.most)
        return Taken(places.ravel(), np.full(places.shape[:2], self.most, np.int64))


@dataclass(frozen=True)
class Poisson(Sampling):
    """Each of n samples in each round with the same probability q, whatever becomes of all others."""

    probability: float = field(kw_only=True)
    chance = "poisson"

    @property
    def words(self) -> str:
        """How likely."""
        return f"q = {self.probability:.3g}"

    def size(self, t: int) -> float:
        """Return q n."""
        return self.probability * self.owned

    def take(self, key: bytes, machines: range, rounds: range) -> Taken:
        """Return those samples of each machine and round of which the random word is small enough."""
        from mu2mpi.federation.subsampling import draw_independently

        # Below 2^64 q, and never with a larger probability than q.
        threshold = math.floor(math.ldexp(self.probability, 64))
        if threshold >> 64:
            sizes = np.full((len(rounds), len(machines)), self.owned, np.int64)
            return Taken(np.tile(np.arange(self.owned), sizes.size), sizes)
        return Taken(*draw_independently(key, machines, rounds, self.owned, threshold))
