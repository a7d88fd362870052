"""Partitions: which machine gets which training samples, and how these are dealt at random."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, TypeAlias

from mu2mpi.core.errors import InputError
from mu2mpi.core.lazy import NDArray, np
from mu2mpi.core.registry import OptionValue, default, find, names
from mu2mpi.core.suggestions import did_you_mean
from mu2mpi.data.seed_stream import philox_key
from mu2mpi.data.source import Source

Integers: TypeAlias = "NDArray[np.int64]"


class Partition(OptionValue, ABC):
    """An assignment of training samples to machines, as text: its name, or ``name:value``.

    It is made from the value, None if there is no colon; InputError if the value cannot be used.
    """

    kind: ClassVar[str] = "partitions"
    summary: ClassVar[str] = ""  # a few words for its place in the help
    is_default: ClassVar[bool] = False  # whether it applies where none is given
    is_by_owner: ClassVar[bool] = False  # whether there is a machine for each owner that the data name

    def __init__(self, value: str | None = None) -> None:
        if value is not None:
            raise InputError(f"should be {self.form}, without a value")

    def most_rounds(self, source: Source, machines: int) -> int:
        """Smallest number of samples of a machine; InputError if a machine would have none."""
        return samples_per_machine(source.training_samples, machines)

    @abstractmethod
    def rows(self, source: Source, machines: int, rounds: int, key: bytes, hosted: range) -> Integers:
        """Return the training rows of machines, in the order of their use.

        Parameters
        ----------
        source : Source
        machines : int
            M.
        rounds : int
            Number of samples that each machine uses, at most.
        key : bytes, shape (32,)
            Determines all that is random. A machine's rows do not depend on which others are hosted.
        hosted : range
            The machines of this rank.

        Returns
        -------
        ndarray of int64, shape (rounds, len(hosted))
            If a machine has fewer samples than rounds, the rest of its column has no meaning.
        """


class LabelPartition(Partition):
    """A partition in which machines take shares of the classes."""

    @abstractmethod
    def shares(self, sizes: Integers, machines: int, each: int, random: np.random.RandomState) -> Integers:
        """Return how many samples each machine gets of each class, shape (M, K), of which there are `sizes`.

        No machine has fewer than `each`.
        """

    def rows(self, source: Source, machines: int, rounds: int, key: bytes, hosted: range) -> Integers:
        """Deal a random share of each class to each machine."""
        each = self.most_rounds(source, machines)
        # Its stream, unlike that of a Generator, is one that numpy promises never to change.
        random = np.random.RandomState(np.random.Philox(key=philox_key(key, "shares of machines")))
        pools, sizes = source.training_labels(), source.class_sizes
        shares = self.shares(sizes, machines, each, random)
        starts: Integers = (np.cumsum(sizes) - sizes) + (np.cumsum(shares, axis=0) - shares)
        return pooled_rows(pools, starts, shares, rounds, key, hosted)


def parse_partition(text: str) -> Partition:
    """Return the partition that a text such as ``dirichlet:0.3`` names; InputError if there is none."""
    name, colon, value = text.partition(":")
    known: dict[str, type[Partition]] = {known: find("partitions", known) for known in names("partitions")}
    if name not in known:
        forms = [one.form for one in known.values()]
        raise InputError(f"should be one of: {', '.join(forms)}{did_you_mean(text, forms)}")
    return known[name](value if colon else None)


def default_partition(has_owners: bool) -> str:
    """Return the partition of data where none is given."""
    return "owner" if has_owners else default("partitions")


def samples_per_machine(samples: int, machines: int) -> int:
    """Return how many samples each machine gets, which is also the largest number of rounds."""
    if machines > samples:
        raise InputError(f"{machines} machines but {samples} samples; give at most --machines {samples}")
    return samples // machines


def check_rounds(most: int, machines: int, rounds: int, needed: int) -> None:
    """Make sure that each machine has the samples that it needs, such as a fresh one a round."""
    if needed > most:
        fewer = f"at most --rounds {most}" if rounds == needed else "fewer --rounds, a larger rho"
        raise InputError(
            f"{rounds} rounds are too many: they need {needed} samples of each machine, and {machines} "
            f"machines have {most} each; give {fewer}, or fewer machines"
        )


def machine_rows(samples: int, machines: int, rounds: int, key: bytes, block: range) -> Integers:
    """Training rows that a block of machines uses, dealt at random by 32 bytes: shape (rounds, len(block)).

    All differ, ``samples % machines`` are left out, and none depends on which machines are asked for.
    """
    each = samples_per_machine(samples, machines)
    dealt = _order(samples, key)[: machines * each].reshape(machines, each)
    return np.ascontiguousarray(dealt[np.asarray(block, np.int64), :rounds].T)


def pooled_rows(
    pools: NDArray[np.generic], starts: Integers, shares: Integers, rounds: int, key: bytes, hosted: range
) -> Integers:
    """Deal samples at random within pools, such as those of a class or of an owner, of which each has one.

    Each machine takes stretches of the samples sorted by pool, from `starts` on, of lengths `shares`: both of
    shape (M, stretches).
    """
    # One random order within each pool, and another for what a machine takes of several.
    order, use = _order(len(pools), key), _order(len(pools), key, "order of use")
    grouped = order[np.argsort(pools[order], kind="stable")]
    turn = np.empty_like(use)
    turn[use] = np.arange(len(use))
    rows = np.empty((rounds, len(hosted)), np.int64)
    for column, machine in enumerate(hosted):
        some = np.flatnonzero(shares[machine])
        stretches = zip(starts[machine, some], shares[machine, some], strict=True)
        own = np.concatenate([grouped[start : start + share] for start, share in stretches])
        # An owner may have fewer than another uses.
        own = own[np.argsort(turn[own])][:rounds]
        rows[: len(own), column] = own
    return rows


def _order(samples: int, key: bytes, use: str = "dealing of samples") -> Integers:
    """Return all training rows in a random order."""
    # Sorting raw bits, unlike numpy's own shuffling, gives the same order in every version of numpy.
    bits = np.random.Philox(key=philox_key(key, use)).random_raw(samples)
    return np.argsort(bits, kind="stable").astype(np.int64, copy=False)
