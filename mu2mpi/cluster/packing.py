"""How the runs of a sweep are packed into the tasks of a job, and what these are expected to take."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mu2mpi.execution.cost import run_cost
from mu2mpi.execution.measurements import planned_measurements
from mu2mpi.execution.plan import Plan

START_SECONDS, RUN_SECONDS = 20.0, 0.1
"""What it takes to start a task, and a run in it: to try launchers, import, compile; to write files."""


@dataclass(frozen=True)
class Load:
    """What a run costs: seconds on one core, of which at most so many machines can take their part."""

    seconds: float
    machines: int


def load_of(plan: Plan) -> Load:
    """Return what a run costs, from its size alone."""
    nanoseconds = run_cost(plan.schedule) + planned_measurements(plan).cost(plan.schedule)
    return Load(RUN_SECONDS + nanoseconds * 1e-9, plan.schedule.machines)


def task_seconds(loads: Sequence[Load], parts: int, ranks: int) -> list[float]:
    """Return what each part of a sweep is expected to take: every rank is busy, or one run is the longest."""

    def of(part: Sequence[Load]) -> float:
        together = sum(load.seconds for load in part) / ranks
        return max([together, *(load.seconds / min(ranks, load.machines) for load in part)])

    return [START_SECONDS + of(loads[k::parts]) for k in range(parts)]


def pack(loads: Sequence[Load], ranks: int, limit: float, most: int) -> int:
    """Return into how many parts a sweep goes such that each takes a tenth of the time limit, in seconds.

    They are as few as that allows, but for some in a hundred, and never more than there are runs, or `most`.
    """
    most = max(1, min(most, len(loads)))
    # Costs are rough, and cores differ; nor should a task take more than a tenth of a day.
    goal = 0.1 * min(limit, 86_400.0)
    parts = min(most, max(1, math.ceil(sum(load.seconds for load in loads) / ranks / goal)))
    while parts < most and max(task_seconds(loads, parts, ranks)) > START_SECONDS + goal:
        parts = min(most, parts + 1 + parts // 50)
    return parts
