"""Partition into contiguous blocks of training rows, in the order of the data set."""

from mu2mpi.core.arrays import IntArray
from mu2mpi.core.lazy import np
from mu2mpi.core.registry import register
from mu2mpi.data.partition import Partition
from mu2mpi.data.source import DataSource


@register
class ContiguousPartition(Partition):
    """Partition that gives each machine a block of consecutive rows, used in order."""

    name, summary = "contiguous", "a block of rows each"

    def rows(
        self, source: DataSource, machines: int, samples: int, key: bytes, hosted_machines: range
    ) -> IntArray:
        first_rows = self.min_samples_per_machine(source, machines) * np.asarray(hosted_machines, np.int64)
        return first_rows + np.arange(samples)[:, np.newaxis]
