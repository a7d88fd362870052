"""Samples dealt at random."""

from mu2mpi.core.registry import register
from mu2mpi.data.partition import Integers, Partition, machine_rows
from mu2mpi.data.source import Source


@register
class Iid(Partition):
    """The same number of random samples for each machine."""

    name, summary = "iid", "random samples"
    is_default = True

    def rows(self, source: Source, machines: int, rounds: int, key: bytes, hosted: range) -> Integers:
        return machine_rows(source.training_samples, machines, rounds, key, hosted)
