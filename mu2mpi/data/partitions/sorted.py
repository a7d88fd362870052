"""Samples sorted by class."""

from __future__ import annotations

from mu2mpi.core.lazy import np
from mu2mpi.core.registry import register
from mu2mpi.data.partition import Counts, LabelPartition


@register
class Sorted(LabelPartition):
    """Samples dealt out class by class: most machines then have one class."""

    name, summary = "sorted", "class by class"

    def shares(self, sizes: Counts, machines: int, each: int, random: np.random.RandomState) -> Counts:
        """Return the shares of machines that are served one after the other."""
        ends = np.minimum(np.cumsum(sizes), machines * each)
        bounds = each * np.arange(machines + 1)[:, np.newaxis]
        return np.diff(np.clip(ends, bounds[:-1], bounds[1:]) - bounds[:-1], axis=1, prepend=0)
