"""Which runs of a sweep are done side by side, and on how many ranks each."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Wave:
    """Runs that share the ranks at the same time: each group of `width` ranks has a lane of runs."""

    width: int
    lanes: tuple[tuple[int, ...], ...]

    def runs(self) -> list[int]:
        """Return the runs of all lanes, in about the order in which they begin."""
        rows = itertools.zip_longest(*self.lanes)
        return [run for row in rows for run in row if run is not None]

    def lane_of(self, rank: int) -> int | None:
        """Return the lane that a rank works in, or None if there is none left for it."""
        lane = rank // self.width
        return lane if lane < len(self.lanes) else None


def waves(machines: Sequence[int], costs: Sequence[float], ranks: int) -> list[Wave]:
    """Arrange runs, by their times on one core, so that every rank is busy to the end with few messages.

    Runs are done one a rank. More ranks, if there are machines for them, get those that are more than a
    rank's fair share of all the work, and the shortest ones if too few are left for one a rank. Runs of the
    same width make a wave; in each, the longest run that is left goes to the lane that is free first.
    """
    order = sorted(range(len(machines)), key=lambda run: (-costs[run], run))
    fair = sum(costs) / ranks
    large = sum(cost > fair for cost in costs)
    left_over = (len(order) - large) % ranks
    widths: dict[int, list[int]] = {}
    for place, run in enumerate(order):
        width = 1
        if place < large:
            # A single run is as many fair shares as there are ranks, or by rounding errors more.
            width = min(ranks, math.ceil(costs[run] / fair))
        elif place >= len(order) - left_over:
            width = ranks // left_over
        widths.setdefault(min(width, machines[run]), []).append(run)
    return [_fill(width, runs, costs, ranks) for width, runs in widths.items()]


def _fill(width: int, runs: list[int], costs: Sequence[float], ranks: int) -> Wave:
    count = min(ranks // width, len(runs))
    if count == 1:
        # Ranks without machines still take their part in evaluations.
        return Wave(ranks, (tuple(runs),))
    lanes: list[list[int]] = [[] for _ in range(count)]
    busy = [0.0] * count
    for run in runs:
        lane = busy.index(min(busy))
        lanes[lane].append(run)
        busy[lane] += costs[run]
    return Wave(width, tuple(map(tuple, lanes)))
