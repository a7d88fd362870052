"""When a run measures loss and score, and on how many test samples: its size alone decides."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mu2mpi.errors import InputError
from mu2mpi.execution.cost import affordable_samples, evaluation_cost, run_cost
from mu2mpi.execution.plan import Plan
from mu2mpi.federation.schedule import Schedule

DEFAULT_EVALUATIONS, FEWEST_EVALUATIONS = 20, 12
"""How many points a curve has by default, and at least, if there are as many rounds."""

FEWEST_SAMPLES = 2000
"""A share of the test set has at least so many: the accuracy on them is right to about 1%."""

MOST_EVALUATIONS = 1_000_000

FREE = 20_000_000
"""Nanoseconds that a run of any size may spend on evaluations."""


@dataclass(frozen=True)
class Measurements:
    """The rounds at which a run measures: in the last on the `whole` test set, before on a `share` of it."""

    rounds: NDArray[np.int64]
    share: int
    whole: int

    def cost(self, schedule: Schedule) -> float:
        """Return the rough time of all of them on one core, in nanoseconds."""
        others = (len(self.rounds) - 1) * evaluation_cost(schedule, self.share)
        return others + evaluation_cost(schedule, self.whole)


def planned_measurements(plan: Plan) -> Measurements:
    """Return when and on what a run measures."""
    schedule, whole = plan.schedule, plan.source.test_samples
    if not schedule.mechanism.shows_messages:
        # Where messages are not protected, the history is no place to show them.
        return Measurements(evaluation_rounds(schedule.rounds, 1), whole, whole)
    if plan.experiment.evaluations is not None:
        return Measurements(evaluation_rounds(schedule.rounds, plan.experiment.evaluations), whole, whole)
    count, share = affordable_measurements(schedule, whole)
    return Measurements(default_rounds(schedule.rounds, count), share, whole)


def affordable_measurements(schedule: Schedule, whole: int) -> tuple[int, int]:
    """Return how many evaluations, and on how many samples, take under about a tenth of a run's time.

    They are 20 to 12 of the whole test set, or else on a share of at least `FEWEST_SAMPLES` but for the last.
    """
    # The run's size alone decides, so that the same experiment always has the same history.
    affordable, one = max(0.1 * run_cost(schedule), FREE), evaluation_cost(schedule, whole)
    if affordable >= FEWEST_EVALUATIONS * one:
        return min(DEFAULT_EVALUATIONS, int(affordable / one)), whole
    share = affordable_samples(schedule, (affordable - one) / (FEWEST_EVALUATIONS - 1))
    return FEWEST_EVALUATIONS, min(whole, max(FEWEST_SAMPLES, share))


def default_rounds(rounds: int, count: int) -> NDArray[np.int64]:
    """Return about `count` rounds, and at least `FEWEST_EVALUATIONS` if there are as many."""
    # Those that lie close together are the same when they are rounded.
    while len(found := evaluation_rounds(rounds, count)) < min(FEWEST_EVALUATIONS, rounds):
        count += 1
    return found


def evaluation_rounds(rounds: int, count: int) -> NDArray[np.int64]:
    """Return up to `count` different rounds from 1 to `rounds`, logarithmically spaced, the last included."""
    first = 1 if count > 1 else rounds
    # So many take in every round.
    count = min(count, math.ceil(rounds * math.log(rounds)) + 2)
    if count > MOST_EVALUATIONS:
        raise InputError(
            f"evaluations = {count:,} in {rounds:,} rounds are too many; give at most {MOST_EVALUATIONS:,}"
        )
    return np.unique(np.geomspace(first, rounds, count).round().astype(np.int64))
