"""Rough cost of a run, and so when it measures and on how many samples: the same on every computer."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mu2mpi.core.errors import InputError
from mu2mpi.execution.plan import Plan
from mu2mpi.federation.run_constants import RunConstants

# Nanoseconds on one core, measured on MNIST.
PER_NORMAL, PER_BUFFER, PER_GRADIENT_WEIGHT, PER_TEST_WEIGHT = 3.2, 0.8, 0.4, 0.12
PER_ROUND, PER_EVALUATION = 10_000, 100_000

# How many points a curve has by default, and at least, if there are as many rounds
DEFAULT_EVALUATIONS, FEWEST_EVALUATIONS = 20, 12
# A share of the test set has at least so many: the accuracy on them is right to about 1%
FEWEST_SAMPLES = 2000
MOST_EVALUATIONS = 1_000_000

FREE = 20_000_000  # Nanoseconds that a run of any size may spend on evaluations


def run_cost(constants: RunConstants) -> float:
    """Return the rough time of all rounds on one core, in nanoseconds, without evaluations."""
    task, rounds, correlation = constants.task, constants.rounds, constants.mechanism.correlation
    draws: float = rounds
    if not (task.trust.is_central or task.aggregate_noise):
        # What a machine drew when it was there last is drawn again to take it back.
        again = 2 if task.per_machine is not None and constants.estimator.lasts else 1
        draws = constants.sum_over_machines(rounds, float) * again
    gradients = constants.sum_over_machines(rounds, constants.sampling.drawn)
    per_normal = PER_NORMAL + (PER_BUFFER * correlation.buffers if correlation is not None else 0.0)
    noise = per_normal * draws if constants.mechanism.is_noisy else 0.0
    return task.d * (PER_GRADIENT_WEIGHT * gradients + noise) + PER_ROUND * rounds


def evaluation_cost(constants: RunConstants, test_samples: int) -> float:
    """Return the rough time of one evaluation on one core, in nanoseconds."""
    return PER_TEST_WEIGHT * constants.task.d * test_samples + PER_EVALUATION


@dataclass(frozen=True)
class Measurements:
    """The rounds at which a run measures: in the last on the `whole` test set, before on a `share` of it."""

    rounds: NDArray[np.int64]
    share: int
    whole: int

    def cost(self, constants: RunConstants) -> float:
        """Return the rough time of all of them on one core, in nanoseconds."""
        others = (len(self.rounds) - 1) * evaluation_cost(constants, self.share)
        return others + evaluation_cost(constants, self.whole)


def planned_measurements(plan: Plan) -> Measurements:
    """Return when and on what a run measures."""
    constants, whole = plan.constants, plan.source.test_samples
    # Where messages are not protected, the history is no place to show them.
    count = plan.experiment.evaluations if constants.mechanism.shows_messages else 1
    if count is not None:
        return Measurements(evaluation_rounds(constants.rounds, count), whole, whole)
    count, share = affordable_measurements(constants, whole)
    return Measurements(default_rounds(constants.rounds, count), share, whole)


def affordable_measurements(constants: RunConstants, whole: int) -> tuple[int, int]:
    """Return how many evaluations, on how many samples but for the last, take a tenth of a run's time."""
    affordable, one = max(0.1 * run_cost(constants), FREE), evaluation_cost(constants, whole)
    if affordable >= FEWEST_EVALUATIONS * one:
        return min(DEFAULT_EVALUATIONS, int(affordable / one)), whole
    each = (affordable - one) / (FEWEST_EVALUATIONS - 1)
    share = int(max(0.0, each - PER_EVALUATION) / (PER_TEST_WEIGHT * constants.task.d))
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
