"""Two data sets that differ in one sample, as near to the worst case as data come."""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from mu2mpi.algorithm.machine import Supply
from mu2mpi.algorithm.schedule import Schedule
from mu2mpi.data.partition import machine_rows
from mu2mpi.data.source import Samples, Source
from mu2mpi.supply import make_supply

__all__ = [
    "CANARY_MACHINE",
    "FEATURE_TYPE",
    "FEWEST_MACHINES",
    "FEWEST_ROUNDS",
    "WORST_CASE",
    "Neighbour",
    "neighbours",
]

CANARY_MACHINE, CANARY_ROUND = 1, 2
"""Whose sample is replaced, and the round in which it is spent.

Neither is the first. Noise that one machine alone would add, or that two rounds or two machines would
share, hides this sample no better than no noise at all.
"""

FEWEST_MACHINES, FEWEST_ROUNDS = 3, 3
"""With a trusted server, a machine other than the first and the canary's must see a step taken after it."""

WORST_CASE = {"clip_norm": 0.01, "diameter": 100.0}
"""Every increment is far longer than the clipping norm, and no iterate comes near the surface of the ball.

All of them are then as long as the guarantee allows, and x_t tells the sums of the rounds before exactly.
"""

FEATURE_TYPE = np.uint8
"""As in the data sets whose kernels are likely to be compiled already."""


class Neighbour(Source):
    """Samples with their only feature at its bound and of class 0; in one of two data sets, all but one.

    With two classes and query points near 0, increments are multiples of (1, -1) z^T, positive for one
    class and negative for the other: once clipped they are opposite.

    Parameters
    ----------
    samples : int
        Size of the training set.
    row : int or None
        The training row that has the other class.
    """

    name = "canary"
    classes = 2
    dimension = 1
    test_samples = 1
    scale = 1.0

    def __init__(self, samples: int, row: int | None) -> None:
        self.training_samples = samples
        self._row = -1 if row is None else row

    def _read_training(self, rows: NDArray[np.int64]) -> Samples:
        labels = (rows == self._row).astype(np.int32)
        return Samples(np.ones((len(rows), self.dimension), FEATURE_TYPE), labels)

    def _read_test(self, rows: NDArray[np.int64]) -> Samples:
        return self._read_training(rows)


def neighbours(
    schedule: Schedule, dealing: bytes, sampling: bytes = bytes(32)
) -> tuple[list[Supply], list[Supply]]:
    """Return what each machine gets from the one data set, and from the other.

    Parameters
    ----------
    schedule : Schedule
        Constants of the run.
    dealing : bytes
        32 bytes that decide which machine gets which sample, and when.
    sampling : bytes, optional
        32 bytes that decide which of its samples a machine draws, where it does.
    """
    machines, owned = schedule.machines, schedule.sampling.owned
    samples = machines * owned
    # A lone machine is the canary's.
    canarys = min(CANARY_MACHINE, machines - 1)
    # Of samples that are drawn, any is as good.
    place = min(schedule.sampling.used(CANARY_ROUND - 1), owned - 1)
    row = machine_rows(samples, machines, owned, dealing, range(canarys, canarys + 1))[place, 0]

    def supplies(source: Source) -> list[Supply]:
        # Every run reads the same.
        hosted = [range(i, i + 1) for i in range(machines)]
        return [cache(make_supply(source, schedule, dealing, of, sampling_key=sampling)) for of in hosted]

    return supplies(Neighbour(samples, None)), supplies(Neighbour(samples, int(row)))
