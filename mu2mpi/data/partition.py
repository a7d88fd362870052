"""Partitions of the training samples: base classes, parsing, and random assignment of samples to machines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, TypeAlias

from mu2mpi.core.errors import InputError
from mu2mpi.core.lazy import NDArray, np
from mu2mpi.core.registry import OptionValue, default_name, known_names, lookup
from mu2mpi.core.suggestions import did_you_mean
from mu2mpi.data.seed_stream import philox_key
from mu2mpi.data.source import Source

Integers: TypeAlias = "NDArray[np.int64]"
Random: TypeAlias = "np.random.RandomState"


class Partition(OptionValue, ABC):
    """Assignment of training samples to machines: a value of ``--partition``, ``name`` or ``name:value``.

    The constructor takes the text after the colon, or None; InputError if it is invalid.
    """

    kind: ClassVar[str] = "partitions"
    summary: ClassVar[str] = ""  # a few words for the help of --partition
    is_default: ClassVar[bool] = False  # whether it is the default for data without owners
    is_by_owner: ClassVar[bool] = False  # whether machines are the owners that the data name

    def __init__(self, value: str | None = None) -> None:
        if value is not None:
            raise InputError(f"should be {self.form}, without a value")

    def min_samples_per_machine(self, source: Source, machines: int) -> int:
        """Return the smallest number of samples of any machine; InputError if a machine has none."""
        return samples_per_machine(source.training_samples, machines)

    @abstractmethod
    def rows(self, source: Source, machines: int, samples: int, key: bytes, hosted: range) -> Integers:
        """Training rows of the hosted machines, in the order in which each uses them.

        Parameters
        ----------
        source : Source
        machines : int
            M.
        samples : int
            Number of samples used per machine, at most.
        key : bytes, shape (32,)
            Key of all randomness. A machine's rows do not depend on which others are hosted.
        hosted : range
            Machines of this rank.

        Returns
        -------
        ndarray of int64, shape (samples, len(hosted))
            For a machine with fewer samples, the remaining entries of the column are undefined.
        """


class LabelPartition(Partition):
    """Base class of partitions by class: each machine gets random samples, so many of each class."""

    @abstractmethod
    def class_counts(self, class_sizes: Integers, machines: int, samples: int, random: Random) -> Integers:
        """Return the samples of each class on each machine, shape (M, K); rows sum to at least `samples`."""

    def rows(self, source: Source, machines: int, samples: int, key: bytes, hosted: range) -> Integers:
        """Deal each machine a random subset of each class, of size `class_counts`."""
        each = self.min_samples_per_machine(source, machines)
        # NumPy guarantees the stream of RandomState, but not that of Generator.
        random = np.random.RandomState(np.random.Philox(key=philox_key(key, "shares of machines")))
        classes, sizes = source.training_labels(), source.class_sizes
        counts = self.class_counts(sizes, machines, each, random)
        starts: Integers = (np.cumsum(sizes) - sizes) + (np.cumsum(counts, axis=0) - counts)
        return stratified_rows(classes, starts, counts, samples, key, hosted)


def parse_partition(text: str) -> Partition:
    """Parse a value of ``--partition`` such as ``dirichlet:0.3``; InputError if it is invalid."""
    name, colon, value = text.partition(":")
    known: dict[str, type[Partition]] = {
        known: lookup("partitions", known) for known in known_names("partitions")
    }
    if name not in known:
        forms = [partition.form for partition in known.values()]
        raise InputError(f"should be one of: {', '.join(forms)}{did_you_mean(text, forms)}")
    return known[name](value if colon else None)


def default_partition(has_owners: bool) -> str:
    """Name of the default partition: ``owner`` if the data name owners."""
    return "owner" if has_owners else default_name("partitions")


def samples_per_machine(samples: int, machines: int) -> int:
    """Return floor(samples / machines), the number of samples per machine in an equal partition."""
    if machines > samples:
        raise InputError(f"--machines must be at most {samples} (training samples), got {machines}")
    return samples // machines


def check_enough_samples(available: int, machines: int, rounds: int, needed: int) -> None:
    """Raise InputError if the rounds need more samples of a machine than it has available."""
    if needed > available:
        fewer = f"at most --rounds {available}" if rounds == needed else "fewer --rounds, a larger rho"
        raise InputError(
            f"{rounds} rounds need {needed} samples of each machine, and {machines} machines have "
            f"{available} each. Give {fewer}, or fewer --machines."
        )


def iid_rows(samples: int, machines: int, samples_used: int, key: bytes, hosted: range) -> Integers:
    """Training rows of an i.i.d. partition, equal blocks of a permutation: (samples_used, len(hosted))."""
    each = samples_per_machine(samples, machines)
    dealt = _random_order(samples, key)[: machines * each].reshape(machines, each)
    return np.ascontiguousarray(dealt[np.asarray(hosted, np.int64), :samples_used].T)


def stratified_rows(
    strata: NDArray[np.generic], starts: Integers, counts: Integers, samples: int, key: bytes, hosted: range
) -> Integers:
    """Training rows of machines that take random samples of strata, such as classes or owners.

    `strata` has the stratum of each training sample. Each machine takes intervals of the list of samples that
    is sorted by stratum and shuffled within each: `starts` and `counts`, shape (M, intervals).
    """
    # One permutation shuffles each stratum, the other the order of use across a machine's strata.
    order, use = _random_order(len(strata), key), _random_order(len(strata), key, "order of use")
    grouped = order[np.argsort(strata[order], kind="stable")]
    rank = np.empty_like(use)
    rank[use] = np.arange(len(use))
    rows = np.empty((samples, len(hosted)), np.int64)
    for column, machine in enumerate(hosted):
        nonempty = np.flatnonzero(counts[machine])
        intervals = zip(starts[machine, nonempty], counts[machine, nonempty], strict=True)
        own = np.concatenate([grouped[start : start + count] for start, count in intervals])
        # An owner may have fewer samples than another uses.
        own = own[np.argsort(rank[own])][:samples]
        rows[: len(own), column] = own
    return rows


def _random_order(samples: int, key: bytes, use: str = "dealing of samples") -> Integers:
    """Random permutation of the training rows."""
    # Sorting raw bits gives the same order in all versions of NumPy, unlike its shuffle.
    bits = np.random.Philox(key=philox_key(key, use)).random_raw(samples)
    return np.argsort(bits, kind="stable").astype(np.int64, copy=False)
