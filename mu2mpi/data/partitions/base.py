"""Partitions: which machine gets which training samples.

Partition modules are imported to list what ``--partition`` takes: what is slow to import waits until samples
are dealt.
"""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import default, find, names
from mu2mpi.core.suggestions import did_you_mean

if TYPE_CHECKING:
    import numpy as np
    from numpy.random import RandomState
    from numpy.typing import NDArray

    from mu2mpi.data.partition import Rows
    from mu2mpi.data.source import Source

    Counts = NDArray[np.int64]


class Partition(ABC):
    """An assignment of training samples to machines, as text: its name, or ``name:value``.

    Parameters
    ----------
    value : str, optional
        What follows the colon.

    Raises
    ------
    InputError
        If there is no such value.
    """

    kind: ClassVar[str] = "partitions"
    name: ClassVar[str]
    form: ClassVar[str]  # value of --partition in messages, by default the name
    summary: ClassVar[str] = ""  # a few words for its place in the help
    is_default: ClassVar[bool] = False  # whether it applies where none is given
    is_by_owner: ClassVar[bool] = False  # whether there is a machine for each owner that the data name

    def __init_subclass__(cls) -> None:
        if "name" in vars(cls) and "form" not in vars(cls):
            cls.form = cls.name

    def __init__(self, value: str | None = None) -> None:
        if value is not None:
            raise InputError(f"should be {self.form}, without a value")

    def most_rounds(self, source: "Source", machines: int) -> int:
        """Return how many samples each machine has at least; InputError if one would have none."""
        from mu2mpi.data.partition import samples_per_machine

        return samples_per_machine(source.training_samples, machines)

    @abstractmethod
    def rows(self, source: "Source", machines: int, rounds: int, key: bytes, hosted: range) -> "Rows":
        """Decide which training rows machines have, and in which order they use them.

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
        Rows
        """


class LabelPartition(Partition):
    """A partition in which machines take shares of the classes."""

    @abstractmethod
    def shares(self, sizes: "Counts", machines: int, each: int, random: "RandomState") -> "Counts":
        """Return how many samples each machine gets of each class, shape (M, K), of which there are `sizes`.

        No machine has fewer than `each`.
        """

    def rows(self, source: "Source", machines: int, rounds: int, key: bytes, hosted: range) -> "Rows":
        """Deal a random share of each class to each machine."""
        import numpy as np

        from mu2mpi.data.partition import pooled_rows
        from mu2mpi.data.streams import philox_key

        each = self.most_rounds(source, machines)
        # Its stream, unlike that of a Generator, is one that numpy promises never to change.
        random = np.random.RandomState(np.random.Philox(key=philox_key(key, "shares of machines")))
        pools, sizes = source.training_labels(), source.class_sizes
        shares = self.shares(sizes, machines, each, random)
        starts: Counts = (np.cumsum(sizes) - sizes) + (np.cumsum(shares, axis=0) - shares)
        return pooled_rows(pools, starts, shares, rounds, key, hosted)


def parse_partition(text: str) -> Partition:
    """Return the partition that a text such as ``dirichlet:0.3`` names; InputError if there is none."""
    name, colon, value = text.partition(":")
    known = {name: find("partitions", name) for name in names("partitions")}
    if name not in known:
        forms = [one.form for one in known.values()]
        raise InputError(f"should be one of: {', '.join(forms)}{did_you_mean(text, forms)}")
    parsed: Partition = known[name](value if colon else None)
    return parsed


def default_partition(has_owners: bool) -> str:
    """Return the partition of data where none is given."""
    by_owner = (name for name in names("partitions") if find("partitions", name).is_by_owner)
    return next(by_owner) if has_owners else default("partitions")
