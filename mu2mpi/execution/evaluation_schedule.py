"""Estimated cost of a run, and the rounds and test samples of its evaluations: equal on every computer."""

import math
from dataclasses import dataclass

import numpy as np

from mu2mpi.core.arrays import IntArray
from mu2mpi.core.errors import InputError
from mu2mpi.execution.plan import Plan
from mu2mpi.federation.run_constants import RunConstants

# Costs in nanoseconds on one core, measured on MNIST
NS_PER_NORMAL = 3.2  # one Gaussian noise sample
NS_PER_BUFFER_COORDINATE = 0.8  # one coordinate of one buffer of correlated noise
NS_PER_GRADIENT_COORDINATE = 0.4  # one model parameter in the gradient of one sample
NS_PER_TEST_COORDINATE = 0.12  # one model parameter in the evaluation of one test sample
NS_PER_ROUND = 10_000
NS_PER_EVALUATION = 100_000
RUN_OVERHEAD_SECONDS = 0.1  # Start and end of a run: reading and writing files

DEFAULT_EVALUATIONS = 20  # Number of evaluations unless ``evaluations`` is given
MIN_EVALUATIONS = 12  # Smallest default number of evaluations, if there are as many rounds
MAX_EVALUATIONS = 100_000  # Largest value accepted for ``evaluations``, unless the run has as few rounds
MIN_TEST_SAMPLES = 2000  # Smallest default sample of the test set: accuracy has an error of about 1%
MIN_EVALUATION_BUDGET_NS = 20_000_000  # Nanoseconds for evaluations that a run of any length may take


def run_cost_ns(constants: RunConstants) -> float:
    """Estimate the time of all rounds on one core without evaluations, in nanoseconds."""
    problem, rounds, correlation = constants.problem, constants.rounds, constants.mechanism.correlation
    noise_vectors: float = rounds
    if not (problem.trust_mode.is_central or problem.uses_aggregate_noise):
        # An absent machine's last noise is drawn a second time, to remove it from a cumulative message.
        repeats = 2 if problem.per_machine_plan is not None and constants.estimator.is_cumulative else 1
        noise_vectors = constants.sum_over_machines(rounds, float) * repeats * constants.sums_per_round
    gradients = constants.sum_over_machines(rounds, constants.batching.processed_samples_until)
    ns_per_sample = NS_PER_NORMAL + NS_PER_BUFFER_COORDINATE * (correlation.buffers if correlation else 0)
    noise = ns_per_sample * noise_vectors if constants.mechanism.is_noisy else 0.0
    coordinates = constants.mechanism.parameters  # of a message
    return coordinates * (NS_PER_GRADIENT_COORDINATE * gradients + noise) + NS_PER_ROUND * rounds


def evaluation_cost_ns(constants: RunConstants, test_samples: int) -> float:
    """Estimate the time of one evaluation on one core, in nanoseconds."""
    return NS_PER_TEST_COORDINATE * constants.problem.d * test_samples + NS_PER_EVALUATION


@dataclass(frozen=True)
class EvaluationSchedule:
    """Rounds and test samples of the evaluations of a run."""

    rounds: IntArray  # increasing, from 1; the last is T
    test_subset_size: int  # test samples per evaluation before round T
    test_samples: int  # test samples in round T: the complete test set

    def cost(self, constants: RunConstants) -> float:
        """Estimate the time of all evaluations on one core, in nanoseconds."""
        before_last = (len(self.rounds) - 1) * evaluation_cost_ns(constants, self.test_subset_size)
        return before_last + evaluation_cost_ns(constants, self.test_samples)


def plan_evaluations(plan: Plan) -> EvaluationSchedule:
    """Plan the evaluations of a run: the requested number, or about a tenth of the run time."""
    constants, test_samples = plan.constants, plan.source.test_samples
    # A history of models would reveal messages that the mechanism does not protect.
    count = plan.experiment.evaluations if constants.mechanism.reveals_messages else 1
    if count is not None:
        rounds = evaluation_rounds(constants.rounds, count)
        return EvaluationSchedule(rounds, test_samples, test_samples)
    count, sample_size = affordable_evaluations(constants, test_samples)
    return EvaluationSchedule(default_evaluation_rounds(constants.rounds, count), sample_size, test_samples)


def run_seconds(plan: Plan) -> float:
    """Estimate the time of a run with its evaluations and files on one core, in seconds."""
    nanoseconds = run_cost_ns(plan.constants) + plan_evaluations(plan).cost(plan.constants)
    return RUN_OVERHEAD_SECONDS + 1e-9 * nanoseconds


def affordable_evaluations(constants: RunConstants, test_samples: int) -> tuple[int, int]:
    """Return number and test samples of evaluations that take about a tenth of a run's time."""
    affordable = max(0.1 * run_cost_ns(constants), MIN_EVALUATION_BUDGET_NS)
    full = evaluation_cost_ns(constants, test_samples)
    if affordable >= MIN_EVALUATIONS * full:
        return min(DEFAULT_EVALUATIONS, int(affordable / full)), test_samples
    variable_ns = max(0.0, (affordable - full) / (MIN_EVALUATIONS - 1) - NS_PER_EVALUATION)
    sample_size = int(variable_ns / (NS_PER_TEST_COORDINATE * constants.problem.d))
    return MIN_EVALUATIONS, min(test_samples, max(MIN_TEST_SAMPLES, sample_size))


def default_evaluation_rounds(rounds: int, count: int) -> IntArray:
    """Return about `count` rounds to evaluate, and at least `MIN_EVALUATIONS` if the run has as many."""
    # Rounding merges rounds that are close together, so that more are requested until enough are left.
    while len(chosen := evaluation_rounds(rounds, count)) < min(MIN_EVALUATIONS, rounds):
        count += 1
    return chosen


def evaluation_rounds(rounds: int, count: int) -> IntArray:
    """Return up to `count` distinct rounds to evaluate, logarithmically spaced, including the last."""
    first = 1 if count > 1 else rounds
    # This many include every round.
    sufficient = math.ceil(rounds * math.log(rounds)) + 2
    if min(count, sufficient) > MAX_EVALUATIONS:
        limit = f"at most {MAX_EVALUATIONS:,} in a run of {rounds:,} rounds"
        raise InputError(f"--evaluations must be {limit}, got {count:,}")
    return np.unique(np.geomspace(first, rounds, min(count, sufficient)).round().astype(np.int64))
