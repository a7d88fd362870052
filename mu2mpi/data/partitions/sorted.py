"""Label-skew partition: samples sorted by class and cut into equal blocks."""

from mu2mpi.core.arrays import IntArray
from mu2mpi.core.lazy import np
from mu2mpi.core.registry import register
from mu2mpi.data.partition import LabelSkewPartition, RandomState


@register
class ClassSortedPartition(LabelSkewPartition):
    """Partition into equal blocks of samples sorted by class, so that most machines have one class."""

    name, summary = "sorted", "class by class"

    def class_counts(self, class_sizes: IntArray, machines: int, samples: int, rng: RandomState) -> IntArray:
        ends = np.minimum(np.cumsum(class_sizes), machines * samples)
        bounds = samples * np.arange(machines + 1)[:, np.newaxis]
        return np.diff(np.clip(ends, bounds[:-1], bounds[1:]) - bounds[:-1], axis=1, prepend=0)
