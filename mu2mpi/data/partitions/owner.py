"""Samples of the owners that the data name."""

from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import register
from mu2mpi.data.partition import Integers, Partition, pooled_rows
from mu2mpi.data.source import Source


@register
class Owner(Partition):
    """All samples of one owner for each machine, in random order."""

    name, summary = "owner", "the samples of one owner each"
    is_by_owner = True

    def most_rounds(self, source: Source, machines: int) -> int:
        sizes = source.owner_sizes
        if (owners := len(sizes)) != machines:
            raise InputError(
                f"{source.name} has {owners} owners, so --machines must be {owners}; or take --partition iid"
            )
        return int(sizes.min())

    def rows(self, source: Source, machines: int, rounds: int, key: bytes, hosted: range) -> Integers:
        sizes = source.owner_sizes
        starts = sizes.cumsum() - sizes
        return pooled_rows(source.training_owners(), starts[:, None], sizes[:, None], rounds, key, hosted)
