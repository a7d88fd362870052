"""Partition of samples among machines uniformly at random, so that machines are i.i.d."""

from mu2mpi.core.arrays import IntArray
from mu2mpi.core.registry import register
from mu2mpi.data.partition import Partition, iid_rows
from mu2mpi.data.source import DataSource


@register
class IidPartition(Partition):
    """Partition that gives each machine equally many random samples."""

    name, summary = "iid", "random samples"
    is_default = True

    def rows(
        self, source: DataSource, machines: int, samples: int, key: bytes, hosted_machines: range
    ) -> IntArray:
        return iid_rows(source.training_samples, machines, samples, key, hosted_machines)
