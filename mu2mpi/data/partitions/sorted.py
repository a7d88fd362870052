"""Samples sorted by class."""

from __future__ import annotations

from mu2mpi.core.lazy import np
from mu2mpi.core.registry import register
from mu2mpi.data.partition import Integers, LabelPartition


@register
class Sorted(LabelPartition):
    """Samples dealt out class by class: most machines then have one class."""

    name, summary = "sorted", "class by class"

    def shares(self, sizes: Integers, machines: int, each: int, random: np.random.RandomState) -> Integers:
        ends = np.minimum(np.cumsum(sizes), machines * each)
        bounds = each * np.arange(machines + 1)[:, np.newaxis]
        return np.diff(np.clip(ends, bounds[:-1], bounds[1:]) - bounds[:-1], axis=1, prepend=0)
