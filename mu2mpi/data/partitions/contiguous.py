"""Samples in the order of the data."""

from mu2mpi.core.lazy import np
from mu2mpi.core.registry import register
from mu2mpi.data.partition import Integers, Partition
from mu2mpi.data.source import Source


@register
class Contiguous(Partition):
    """A block of consecutive rows for each machine, used in their order."""

    name, summary = "contiguous", "a block of rows each"

    def rows(self, source: Source, machines: int, rounds: int, key: bytes, hosted: range) -> Integers:
        first = self.most_rounds(source, machines) * np.asarray(hosted, np.int64)
        return first + np.arange(rounds)[:, np.newaxis]
