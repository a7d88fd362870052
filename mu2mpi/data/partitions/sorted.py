"""Samples sorted by class."""

from typing import TYPE_CHECKING

from mu2mpi.core.registry import register
from mu2mpi.data.partitions.base import LabelPartition

if TYPE_CHECKING:
    from numpy.random import RandomState

    from mu2mpi.data.partitions.base import Counts


@register
class Sorted(LabelPartition):
    """Samples dealt out class by class: most machines then have one class."""

    name, summary = "sorted", "class by class"

    def shares(self, sizes: "Counts", machines: int, each: int, random: "RandomState") -> "Counts":
        """Return the shares of machines that are served one after the other."""
        import numpy as np

        ends = np.minimum(np.cumsum(sizes), machines * each)
        bounds = each * np.arange(machines + 1)[:, np.newaxis]
        return np.diff(np.clip(ends, bounds[:-1], bounds[1:]) - bounds[:-1], axis=1, prepend=0)
