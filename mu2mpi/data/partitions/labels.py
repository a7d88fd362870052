"""Label-skew partition: a few shards per machine, each of samples of a single class."""

import re
from bisect import bisect_right

from mu2mpi.core.arrays import IntArray
from mu2mpi.core.errors import InputError
from mu2mpi.core.lazy import np
from mu2mpi.core.registry import register
from mu2mpi.data.partition import LabelSkewPartition, RandomState
from mu2mpi.data.source import DataSource


@register
class ShardPartition(LabelSkewPartition):
    """Partition that gives each machine N shards of equal size, each of samples of one class."""

    name, option_syntax, summary = "labels", "labels:N", "N classes each"

    def __init__(self, value: str | None = None) -> None:
        if not re.fullmatch(r"[1-9]\d{0,8}", value or ""):
            raise InputError("should be labels:N with a number of classes such as labels:2")
        self.labels_per_machine = int(value or 0)

    def min_samples_per_machine(self, source: DataSource, machines: int) -> int:
        labels = self.labels_per_machine
        if labels > source.classes:
            raise InputError(f"labels:{labels} needs {labels} classes, and there are only {source.classes}")
        samples = labels * shard_size(source.class_sizes, machines * labels)
        if samples == 0:
            raise InputError(f"{source.name} has too few samples for labels:{labels}. Give fewer --machines.")
        return samples

    def class_counts(self, class_sizes: IntArray, machines: int, samples: int, rng: RandomState) -> IntArray:
        """Class counts per machine from random equal shards; samples beyond whole shards are not used.

        See McMahan et al., "Communication-efficient learning of deep networks from decentralized data", 2017.
        """
        size = shard_size(class_sizes, machines * self.labels_per_machine)
        class_of_shard = rng.permutation(np.repeat(np.arange(len(class_sizes)), class_sizes // size))
        counts = np.zeros((machines, len(class_sizes)), np.int64)
        machine_of_shard = np.repeat(np.arange(machines), self.labels_per_machine)
        np.add.at(counts, (machine_of_shard, class_of_shard[: len(machine_of_shard)]), size)
        return counts


def shard_size(class_sizes: IntArray, shards: int) -> int:
    """Largest shard size s with sum_k floor(n_k / s) >= shards for class sizes n_k; 0 if there is none."""
    sizes = range(1, int(class_sizes.sum()) // shards + 1)
    return bisect_right(sizes, -shards, key=lambda size: -(class_sizes // size).sum())
