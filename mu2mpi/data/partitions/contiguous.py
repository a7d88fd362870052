"""Contiguous blocks of rows, in the order of the data."""

from mu2mpi.core.lazy import np
from mu2mpi.core.registry import register
from mu2mpi.data.partition import Integers, Partition
from mu2mpi.data.source import Source


@register
class Contiguous(Partition):
    """A block of consecutive rows per machine, used in order."""

    name, summary = "contiguous", "a block of rows each"

    def rows(self, source: Source, machines: int, samples: int, key: bytes, hosted: range) -> Integers:
        first = self.min_samples_per_machine(source, machines) * np.asarray(hosted, np.int64)
        return first + np.arange(samples)[:, np.newaxis]
