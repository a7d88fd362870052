"""Partition with one machine per owner of samples in the data set."""

from mu2mpi.core.arrays import IntArray
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import register
from mu2mpi.data.partition import Partition, stratified_rows
from mu2mpi.data.source import DataSource


@register
class OwnerPartition(Partition):
    """Partition that gives each machine all samples of one owner, used in random order."""

    name, summary = "owner", "the samples of one owner each"
    is_by_owner = True

    def min_samples_per_machine(self, source: DataSource, machines: int) -> int:
        sizes = source.owner_sizes
        if (owners := len(sizes)) != machines:
            raise InputError(f"--machines must be {owners} (owners), got {machines}; or use --partition iid")
        return int(sizes.min())

    def rows(
        self, source: DataSource, machines: int, samples: int, key: bytes, hosted_machines: range
    ) -> IntArray:
        owners, sizes = source.training_owners(), source.owner_sizes
        starts = sizes.cumsum() - sizes
        return stratified_rows(owners, starts[:, None], sizes[:, None], samples, key, hosted_machines)
