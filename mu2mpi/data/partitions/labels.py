"""A few classes for each machine."""

from __future__ import annotations

import re
from bisect import bisect_right

from mu2mpi.core.errors import InputError
from mu2mpi.core.lazy import np
from mu2mpi.core.registry import register
from mu2mpi.data.partition import Integers, LabelPartition
from mu2mpi.data.source import Source


@register
class Labels(LabelPartition):
    """Shards of one class each, N of them for each machine."""

    name, form, summary = "labels", "labels:N", "N classes each"

    def __init__(self, value: str | None = None) -> None:
        if not re.fullmatch(r"[1-9]\d{0,8}", value or ""):
            raise InputError("should be labels:N with a number of classes such as labels:2")
        self.labels = int(value or 0)

    def most_rounds(self, source: Source, machines: int) -> int:
        labels = self.labels
        if labels > source.classes:
            raise InputError(f"partition = labels:{labels}, and there are only {source.classes} classes")
        each = labels * shard_size(source.class_sizes, machines * labels)
        if each == 0:
            raise InputError(f"{source.name} has too few samples for labels:{labels}; give fewer --machines")
        return each

    def shares(self, sizes: Integers, machines: int, each: int, random: np.random.RandomState) -> Integers:
        """Return the sizes of shards that are dealt out at random.

        Shards are as large as they can be; what is left of a class is not used. See McMahan et al.,
        "Communication-efficient learning of deep networks from decentralized data", 2017.
        """
        size = shard_size(sizes, machines * self.labels)
        class_of_shard = random.permutation(np.repeat(np.arange(len(sizes)), sizes // size))
        shares = np.zeros((machines, len(sizes)), np.int64)
        takers = np.repeat(np.arange(machines), self.labels)
        np.add.at(shares, (takers, class_of_shard[: len(takers)]), size)
        return shares


def shard_size(sizes: Integers, shards: int) -> int:
    """Return the largest size of which so many shards, each of one class, can be cut; 0 if there is none."""
    # The larger they are, the fewer can be cut.
    tried = range(1, int(sizes.sum()) // shards + 1)
    return bisect_right(tried, -shards, key=lambda size: -(sizes // size).sum())
