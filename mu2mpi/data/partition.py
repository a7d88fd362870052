"""Partitions of the training samples among machines: base classes, parsing, and random assignment."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, TypeAlias

from mu2mpi.core.arrays import IntArray
from mu2mpi.core.errors import InputError
from mu2mpi.core.lazy import NDArray, np
from mu2mpi.core.registry import OptionValue, known_names, lookup
from mu2mpi.core.suggestions import should_be_one_of
from mu2mpi.data.seed_stream import philox_key
from mu2mpi.data.source import DataSource

RandomState: TypeAlias = "np.random.RandomState"


class Partition(OptionValue, ABC):
    """Assignment of training samples to machines, as --partition selects by NAME or NAME:VALUE."""

    component_kind: ClassVar[str] = "partitions"
    summary: ClassVar[str] = ""  # a few words for the help of --partition
    is_default: ClassVar[bool] = False  # whether it is the default for data without owners
    is_by_owner: ClassVar[bool] = False  # whether machines are the owners that the data name

    def __init__(self, value: str | None = None) -> None:
        if value is not None:
            raise InputError(f"should be {self.option_syntax}, without a value")

    def min_samples_per_machine(self, source: DataSource, machines: int) -> int:
        """Return the smallest number of training samples of any machine; InputError if a machine has none."""
        if machines > (samples := source.training_samples):
            raise InputError(f"--machines must be at most {samples} (training samples), got {machines}")
        return samples // machines

    @abstractmethod
    def rows(
        self, source: DataSource, machines: int, samples: int, key: bytes, hosted_machines: range
    ) -> IntArray:
        """Training rows assigned to the machines hosted on this rank, in order of use.

        Parameters
        ----------
        source : DataSource
        machines, samples : int
            Number of machines M, and largest number of samples used per machine.
        key : bytes, shape (32,)
            Key of all randomness. A machine's rows do not depend on which others are hosted.
        hosted_machines : range
            Machines of this rank.

        Returns
        -------
        ndarray of int64, shape (samples, len(hosted_machines))
            For a machine with fewer samples, the remaining entries of the column are undefined.
        """


class LabelSkewPartition(Partition):
    """Base class of label-skewed partitions: random samples, with fixed numbers per machine and class."""

    @abstractmethod
    def class_counts(self, class_sizes: IntArray, machines: int, samples: int, rng: RandomState) -> IntArray:
        """Count samples per machine and class, shape (machines, classes); rows sum to `samples` or more."""

    def rows(
        self, source: DataSource, machines: int, samples: int, key: bytes, hosted_machines: range
    ) -> IntArray:
        """Training rows of the hosted machines: random subsets of the classes, with sizes `class_counts`."""
        min_samples = self.min_samples_per_machine(source, machines)
        # NumPy guarantees the stream of RandomState, but not that of Generator.
        rng = np.random.RandomState(np.random.Philox(key=philox_key(key, "shares of machines")))
        classes, sizes = source.training_labels(), source.class_sizes
        counts = self.class_counts(sizes, machines, min_samples, rng)
        starts: IntArray = (np.cumsum(sizes) - sizes) + (np.cumsum(counts, axis=0) - counts)
        return stratified_rows(classes, starts, counts, samples, key, hosted_machines)


def parse_partition(text: str) -> Partition:
    """Parse a --partition value such as ``dirichlet:0.3`` to a partition; InputError if it is invalid."""
    name, colon, value = text.partition(":")
    if name not in (names := known_names("partitions")):
        syntaxes = [lookup("partitions", known_name).option_syntax for known_name in names]
        raise InputError(should_be_one_of(text, syntaxes))
    partition: type[Partition] = lookup("partitions", name)
    return partition(value if colon else None)


def check_enough_samples(available: int, machines: int, rounds: int, needed: int) -> None:
    """Raise InputError if the rounds need more samples of a machine than are available."""
    if needed > available:
        fewer = f"at most --rounds {available}" if rounds == needed else "fewer --rounds, a larger rho"
        need = f"{rounds} rounds need {needed} samples of each machine"
        have = f"{machines} machines have {available} each"
        raise InputError(f"{need}, and {have}. Give {fewer}, or fewer --machines.")


def iid_rows(samples: int, machines: int, samples_used: int, key: bytes, hosted_machines: range) -> IntArray:
    """Training rows of an i.i.d. partition, in blocks of a permutation: shape (samples_used, machines)."""
    block_size = samples // machines
    blocks = _random_order(samples, key)[: machines * block_size].reshape(machines, block_size)
    return np.ascontiguousarray(blocks[np.asarray(hosted_machines, np.int64), :samples_used].T)


def stratified_rows(
    strata: NDArray[Any], starts: IntArray, counts: IntArray, samples: int, key: bytes, hosted_machines: range
) -> IntArray:
    """Training rows of the hosted machines, which take random samples of strata (classes or owners).

    A machine takes intervals, given by `starts` and `counts`, of the samples shuffled within each stratum.
    """
    # One permutation shuffles each stratum, the other the order of use across a machine's strata.
    order, use_order = _random_order(len(strata), key), _random_order(len(strata), key, "order of use")
    grouped = order[np.argsort(strata[order], kind="stable")]
    use_position = np.argsort(use_order)
    rows = np.empty((samples, len(hosted_machines)), np.int64)
    for column, machine in enumerate(hosted_machines):
        nonempty = np.flatnonzero(counts[machine])
        intervals = zip(starts[machine, nonempty], counts[machine, nonempty], strict=True)
        own_rows = np.concatenate([grouped[start : start + count] for start, count in intervals])
        own_rows = own_rows[np.argsort(use_position[own_rows])][:samples]
        rows[: len(own_rows), column] = own_rows
    return rows


def _random_order(samples: int, key: bytes, purpose: str = "dealing of samples") -> IntArray:
    # Sorting raw bits gives the same order in all versions of NumPy, unlike its shuffle.
    bits = np.random.Philox(key=philox_key(key, purpose)).random_raw(samples)
    return np.argsort(bits, kind="stable").astype(np.int64, copy=False)
