"""Partition into contiguous blocks of training rows, in the order of the data set."""

from mu2mpi.core.arrays import IntArray
from mu2mpi.core.lazy import np
from mu2mpi.core.registry import register
from mu2mpi.data.partition import Partition
from mu2mpi.data.source import Source


@register
class Contiguous(Partition):
    """Partition that gives each machine a block of consecutive rows, used in order."""

    name, summary = "contiguous", "a block of rows each"

    def rows(
        self, source: Source, machines: int, samples: int, key: bytes, hosted_machines: range
    ) -> IntArray:
        first = self.min_samples_per_machine(source, machines) * np.asarray(hosted_machines, np.int64)
        return first + np.arange(samples)[:, np.newaxis]
