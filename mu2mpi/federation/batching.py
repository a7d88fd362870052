"""Batching rules: which of its samples each machine uses in each round."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import ClassVar, NamedTuple, Self

from mu2mpi.core.arrays import IntArray
from mu2mpi.core.lazy import np


class BatchIndices(NamedTuple):
    """Sample indices of batches, one batch after the other, and the size of each batch."""

    indices: IntArray  # samples, numbered within their machine
    sizes: IntArray  # shape (batches,)


@dataclass(frozen=True)
class Batching(ABC):
    """Base class of batching rules: which of n samples every machine uses in each of T rounds."""

    samples_per_machine: int  # n, the samples that a machine needs
    rounds: int  # T
    max_batch_size: int = 1  # largest batch of one round
    subsampling: ClassVar[str] = ""  # kind of random subsampling, if batches are random
    # Text with the parameters of the random subsampling, which are fields in braces
    description_template: ClassVar[str] = ""
    is_fresh: ClassVar[bool] = False  # whether a machine with more samples may take part in more rounds

    @property
    def is_full_batch(self) -> bool:
        """Whether every machine uses all its samples in every round."""
        all_samples = self.samples_per_machine * self.rounds
        return not self.subsampling and self.processed_samples_until(self.rounds) == all_samples

    @property
    def description(self) -> str:
        """Text with the parameters of the random subsampling; empty if batches are not random."""
        return self.description_template.format_map(vars(self))

    def batch_size(self, t: int) -> float:
        """Return the expected number of samples in a machine's batch of round t."""
        return self.max_batch_size

    def distinct_samples_until(self, t: int) -> int:
        """Return the largest number of distinct samples that a machine uses in rounds 1 .. t."""
        return min(self.samples_per_machine, self.max_batch_size * t)

    def processed_samples_until(self, t: int) -> float:
        """Return the expected sum of a machine's batch sizes over rounds 1 .. t, with repeated samples."""
        return self.batch_size(t) * t if self.subsampling else self.distinct_samples_until(t)

    def max_uses_per_sample(self, t: int) -> int:
        """Return the largest number of batches of rounds 1 .. t that contain the same sample."""
        return t if self.subsampling else 1

    def rounds_with_same_batches(self, t: int) -> int:
        """Return the number of rounds from t on in which every machine's batch is that of round t."""
        return self.rounds - t + 1 if self.is_full_batch else 1

    @abstractmethod
    def batches(self, key: bytes, machines: IntArray, rounds: IntArray) -> BatchIndices:
        """Return one batch for each pair of a machine (from 0) and a round (from 1) of two equal shapes.

        A 32-byte key seeds random batches. A batch depends on its own machine and round alone.
        """


class FreshSamples(Batching):
    """Batches of one new sample per round; `samples_per_machine` is a machine's largest number of rounds."""

    is_fresh = True

    def distinct_samples_until(self, t: int) -> int:
        return t

    def batches(self, key: bytes, machines: IntArray, rounds: IntArray) -> BatchIndices:
        """Return batches of one sample: the t-th sample of each machine in round t."""
        return BatchIndices(rounds - 1, np.ones_like(rounds))


@dataclass(frozen=True)
class DisjointBatches(Batching):
    """Pairwise disjoint batches; `batch_ends[t - 1]` is the sum of the first t batch sizes."""

    batch_ends: tuple[int, ...] = field(kw_only=True)

    @cached_property
    def _bounds(self) -> IntArray:
        return np.array([0, *self.batch_ends])

    @classmethod
    def from_batch_ends(cls, batch_ends: tuple[int, ...]) -> Self:
        """Return disjoint batches from the cumulative batch sizes of rounds 1 .. T."""
        largest = max(end - start for start, end in pairwise((0, *batch_ends)))
        return cls(batch_ends[-1], len(batch_ends), largest, batch_ends=batch_ends)

    def batch_size(self, t: int) -> float:
        return self.distinct_samples_until(t) - self.distinct_samples_until(t - 1)

    def distinct_samples_until(self, t: int) -> int:
        return self.batch_ends[t - 1] if t else 0

    def batches(self, key: bytes, machines: IntArray, rounds: IntArray) -> BatchIndices:
        """Return batches that are consecutive blocks of each machine's samples."""
        starts = self._bounds[rounds - 1]
        sizes = self._bounds[rounds] - starts
        offsets = starts - (np.cumsum(sizes) - sizes)
        return BatchIndices(np.arange(sizes.sum()) + np.repeat(offsets, sizes), sizes)


@dataclass(frozen=True)
class PhaseBatches(Batching):
    """Phases with half the samples of the phase before, disjoint and all in each round of their phase.

    Phases differ by at most one round; the first is the longest.
    """

    phases: int = field(kw_only=True)

    @classmethod
    def halving(cls, samples: int, rounds: int, phases: int) -> Self:
        """Return the phases of some samples of a machine, at least 2^phases - 1."""
        return cls(samples, rounds, -(-samples * 2 ** (phases - 1) // (2**phases - 1)), phases=phases)

    @cached_property
    def _batches_of_phases(self) -> DisjointBatches:
        n, all_parts = self.samples_per_machine, 2**self.phases - 1
        parts = [all_parts + 1 - 2 ** (self.phases - i) for i in range(1, self.phases + 1)]
        return DisjointBatches.from_batch_ends(tuple(-(-n * part // all_parts) for part in parts))

    def phase(self, t: int) -> int:
        """Return the phase of round t, from 1; 0 for round 0."""
        return (t - 1) * self.phases // self.rounds + 1

    def phase_end(self, phase: int) -> int:
        """Return the last round of a phase; 0 for phase 0."""
        return -(-self.rounds * phase // self.phases)

    def batch_size(self, t: int) -> float:
        return self._batches_of_phases.batch_size(self.phase(t))

    def distinct_samples_until(self, t: int) -> int:
        return self._batches_of_phases.distinct_samples_until(self.phase(t))

    def processed_samples_until(self, t: int) -> float:
        ends = [min(t, self.phase_end(phase)) for phase in range(self.phases + 1)]
        return sum((end - start) * self.batch_size(end) for start, end in pairwise(ends) if end > start)

    def max_uses_per_sample(self, t: int) -> int:
        return min(t, self.phase_end(1))

    def rounds_with_same_batches(self, t: int) -> int:
        return self.phase_end(self.phase(t)) - t + 1

    def batches(self, key: bytes, machines: IntArray, rounds: IntArray) -> BatchIndices:
        """Return all samples of the phases of the rounds."""
        return self._batches_of_phases.batches(key, machines, (rounds - 1) * self.phases // self.rounds + 1)


class CyclicBatches(Batching):
    """Batches of K = `max_batch_size` consecutive samples, in cyclic passes over a machine's n samples."""

    def processed_samples_until(self, t: int) -> int:
        return self.max_batch_size * t

    def max_uses_per_sample(self, t: int) -> int:
        """Return K t / n, rounded up: the largest number of the first t batches with the same sample."""
        return -(-self.max_batch_size * t // self.samples_per_machine)

    def batches(self, key: bytes, machines: IntArray, rounds: IntArray) -> BatchIndices:
        """Return batches of K samples in cyclic order: each starts where the previous round's ends."""
        K = self.max_batch_size
        indices = K * (rounds[:, np.newaxis] - 1) + np.arange(K)
        return BatchIndices(indices.ravel() % self.samples_per_machine, np.full_like(rounds, K))


@dataclass(frozen=True)
class LocalBatches(CyclicBatches):
    """Batches of the local steps of a round, in cyclic passes; those on all samples are read once.

    `max_batch_size` counts the samples that are read in a round: n, or those of all local steps.
    """

    local_steps: int = field(kw_only=True)
    local_batch: int = field(kw_only=True)  # K, samples of one local step

    @property
    def samples_per_round(self) -> int:
        """Number of samples, with repeated ones, in the local steps of a round."""
        return self.local_steps * self.local_batch

    @property
    def is_full_batch(self) -> bool:
        return self.max_batch_size == self.samples_per_machine

    def batch_size(self, t: int) -> float:
        """Return the batch size of a local step, by which a machine divides its gradients."""
        return self.local_batch

    def processed_samples_until(self, t: int) -> int:
        return self.samples_per_round * t

    def max_uses_per_sample(self, t: int) -> int:
        return -(-self.samples_per_round * t // self.samples_per_machine)


@dataclass(frozen=True)
class SampledMachines(LocalBatches):
    """Poisson subsampling of machines: each takes its local steps in a round with the same probability."""

    probability: float = field(kw_only=True)
    subsampling = "poisson-machines"
    description_template = "each machine with probability {probability:.3g}"
    is_full_batch = False

    def batch_size(self, t: int) -> float:
        """Return the expected share of a machine's message, which stands for all its samples."""
        return self.probability

    def processed_samples_until(self, t: int) -> float:  # type: ignore[override]
        return self.probability * self.samples_per_round * t

    def max_uses_per_sample(self, t: int) -> int:
        return t

    def batches(self, key: bytes, machines: IntArray, rounds: IntArray) -> BatchIndices:
        """Return batches, which are empty unless a machine's random 64-bit word is less than 2^64 q."""
        from mu2mpi.federation.subsampling import sample_poisson_batches

        sizes = np.ones_like(rounds)
        if (threshold := math.floor(math.ldexp(self.probability, 64))) >> 64 == 0:
            _, sizes = sample_poisson_batches(key, machines, rounds, 1, threshold)
        present = sizes > 0
        sizes[present] = self.max_batch_size
        return BatchIndices(super().batches(key, machines[present], rounds[present]).indices, sizes)


class ReplacementBatches(Batching):
    """Batches of K = `max_batch_size` samples, drawn uniformly with replacement from n samples."""

    subsampling = "replacement"
    description_template = "K = {max_batch_size} of n = {samples_per_machine} samples"

    def batches(self, key: bytes, machines: IntArray, rounds: IntArray) -> BatchIndices:
        """Return batches of K samples, drawn with replacement for each machine and round."""
        from mu2mpi.federation.subsampling import sample_replacement_batches

        n, K = self.samples_per_machine, self.max_batch_size
        indices = sample_replacement_batches(key, machines, rounds, n, K)
        return BatchIndices(indices.ravel(), np.full_like(rounds, K))


@dataclass(frozen=True)
class PoissonBatches(Batching):
    """Poisson subsampling: each sample is in each batch with probability q, independently."""

    probability: float = field(kw_only=True)
    subsampling = "poisson"
    description_template = "q = {probability:.3g}"

    def batch_size(self, t: int) -> float:
        return self.probability * self.samples_per_machine

    def batches(self, key: bytes, machines: IntArray, rounds: IntArray) -> BatchIndices:
        """Return batches of the samples whose random 64-bit word is less than 2^64 q."""
        from mu2mpi.federation.subsampling import sample_poisson_batches

        # Rounded down: the accountant allows no larger probability than q.
        n, threshold = self.samples_per_machine, math.floor(math.ldexp(self.probability, 64))
        if threshold >> 64:
            return BatchIndices(np.tile(np.arange(n), len(rounds)), np.full_like(rounds, n))
        return BatchIndices(*sample_poisson_batches(key, machines, rounds, n, threshold))
