"""When and how loss and accuracy are measured: in parallel, with the same bits on any number of ranks."""

import itertools
import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from mu2mpi.data.source import Samples, Source
from mu2mpi.data.sources.population import Population
from mu2mpi.errors import InputError
from mu2mpi.execution.cost import evaluation_cost, run_cost
from mu2mpi.execution.plan import Plan
from mu2mpi.federation.schedule import Schedule
from mu2mpi.parallel import Communicator, block
from mu2mpi.problem.base import Problem
from mu2mpi.problem.linear import sum_losses
from mu2mpi.problem.minimum import TOLERANCE
from mu2mpi.problem.scaling import bias_feature, sample_scales, scaled, with_bias

PIECE = 250
"""Test samples whose losses are summed by one rank in one go. Sums of pieces are combined exactly, so
the pieces, and not the ranks, determine the bits of the result."""

DEFAULT_EVALUATIONS = 20

MOST_EVALUATIONS = 1_000_000

FREE, FREE_PASSES = 20_000_000, 1_500_000_000
"""Nanoseconds that a run of any size may spend on evaluations, and on gradients on the test set."""

PER_GRADIENT_PASS = 4.0
"""What a pass that computes gradients takes, in evaluations."""

GRID = 2.0**-32
"""Spacing of the integers as which gradients of pieces are summed, exactly in any order."""


def evaluation_rounds(rounds: int, count: int) -> NDArray[np.int64]:
    """Return up to `count` different rounds from 1 to `rounds`, logarithmically spaced, the last included.

    InputError says that they, or what is measured at them, would take too much memory.
    """
    first = 1 if count > 1 else rounds
    # So many take in every round.
    count = min(count, math.ceil(rounds * math.log(rounds)) + 2)
    if count > MOST_EVALUATIONS:
        raise InputError(
            f"evaluations = {count:,} in {rounds:,} rounds are too many; give at most {MOST_EVALUATIONS:,}"
        )
    return np.unique(np.geomspace(first, rounds, count).round().astype(np.int64))


def planned_rounds(plan: Plan) -> NDArray[np.int64]:
    """Return the rounds at which a run measures."""
    schedule, source = plan.schedule, plan.source
    count = plan.experiment.evaluations or affordable_evaluations(schedule, source.test_samples)
    # Where messages are not protected, the history is no place to show them.
    return evaluation_rounds(schedule.rounds, count if schedule.mechanism.shows_messages else 1)


def affordable_evaluations(schedule: Schedule, test_samples: int) -> int:
    """Return how many evaluations take under about a tenth of a run's time: 20, or fewer but at least 3."""
    # The run's size alone decides, so that the same experiment always has the same history.
    affordable = max(0.1 * run_cost(schedule), FREE) / evaluation_cost(schedule, test_samples)
    return int(max(3, min(DEFAULT_EVALUATIONS, affordable)))


def affordable_passes(schedule: Schedule, test_samples: int) -> int:
    """Return how many gradients on the test set take under about a tenth of a run's time, but at least 5.

    A run of any size may spend 1.5 seconds on them, which is 20 on MNIST. More than 1,000 are never useful.
    """
    one = PER_GRADIENT_PASS * evaluation_cost(schedule, test_samples)
    return int(max(5, min(1000, max(0.1 * run_cost(schedule), FREE_PASSES) / one)))


class Evaluator:
    """Loss and accuracy on a test set that is split over the ranks.

    Each rank reads its part of it once, or where that is large, in chunks for each measurement.
    """

    tolerance = TOLERANCE
    """Nats to which the smallest loss on the test set is worth knowing."""

    def __init__(
        self, source: Source, communicator: Communicator, problem: Problem, unit_norm: bool = False
    ) -> None:
        self._source, self._communicator, self._problem = source, communicator, problem
        self._sum_losses = problem.kernel(sum_losses)
        self._unit_norm, self._bias = unit_norm, bias_feature(unit_norm)
        self._size = source.test_samples
        pieces = block(math.ceil(self._size / PIECE), communicator.size, communicator.rank)
        start, stop = pieces.start * PIECE, min(pieces.stop * PIECE, self._size)
        at_once = PIECE * math.ceil(source.at_once(max(1, stop - start)) / PIECE)
        self._chunks = [range(k, min(k + at_once, stop)) for k in range(start, stop, at_once)]
        self._read(self._chunks[0] if self._chunks else range(0))

    def _read(self, chunk: range) -> None:
        self._held = chunk
        self.samples: Samples = self._source.test(np.arange(chunk.start, chunk.stop))
        self._scales = sample_scales(self.samples.features, self._source.scale, self._unit_norm)

    def measure(self, x: NDArray[np.float64]) -> tuple[float, float] | None:
        """Return the mean loss in nats and the accuracy of x, which all ranks hold, on rank 0."""
        sums = [self._sum_losses(x, *piece, self._bias) for piece in self._pieces()]
        gathered = self._communicator.gather(sums)
        if gathered is None:
            return None
        losses, correct = zip(*itertools.chain(*gathered), strict=True)
        return math.fsum(losses) / self._size, sum(correct) / self._size

    def gradient(self, x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Return the mean loss of x in nats and its gradient, shape (K, F), the same bits on every rank."""
        total, losses = np.zeros(x.shape, dtype=np.int64), []
        for features, labels, scales in self._pieces():
            z = with_bias(features, scales, self._bias)
            loss, gradient = self._problem.loss_and_gradient(x, z, labels)
            losses.append(loss)
            total += np.rint(gradient / GRID).astype(np.int64)
        summed = self._communicator.reduce(total, np.empty_like(total))
        gathered, found = self._communicator.gather(losses), None
        if summed is not None and gathered is not None:
            found = math.fsum(itertools.chain(*gathered)) / self._size, summed * (GRID / self._size)
        loss, gradient = self._communicator.share(found)
        return loss, gradient

    def _pieces(self) -> Iterator[tuple[NDArray[np.generic], NDArray[np.int32], NDArray[np.float64]]]:
        """Yield this rank's pieces: features as stored, shape (n, F - 1), their labels and their scales."""
        for chunk in self._chunks:
            if chunk != self._held:
                self._read(chunk)
            features, labels = self.samples.features, self.samples.labels
            for start in range(0, len(labels), PIECE):
                piece = slice(start, start + PIECE)
                yield features[piece], labels[piece], self._scales[piece]


class ExactEvaluator:
    """Expected loss and accuracy on a population, as sums over all of its points.

    Rank 0 alone computes them; that takes less than a few rounds.
    """

    tolerance = 1e-12
    """Rounding leaves no more."""

    def __init__(
        self, population: Population, communicator: Communicator, problem: Problem, unit_norm: bool = False
    ) -> None:
        self._communicator, self._problem = communicator, problem
        self._weights = population.probabilities()
        self._z = scaled(population.points, population.scale, unit_norm)

    def measure(self, x: NDArray[np.float64]) -> tuple[float, float] | None:
        """Return f(x) in nats and the probability that x is right, on rank 0."""
        if self._communicator.rank != 0:
            return None
        loss, _ = self._problem.expected(x, self._z, self._weights)
        return loss, self._problem.probability_right(x, self._z, self._weights)

    def gradient(self, x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Return f(x) in nats and its gradient, shape (K, F), the same bits on every rank."""
        on_rank_0 = self._communicator.rank == 0
        found = self._problem.expected(x, self._z, self._weights) if on_rank_0 else None
        loss, gradient = self._communicator.share(found)
        return loss, gradient


def make_evaluator(
    source: Source, schedule: Schedule, communicator: Communicator
) -> Evaluator | ExactEvaluator:
    """Return what measures models: on the test set, or where the population is known, exactly."""
    if isinstance(source, Population):
        return ExactEvaluator(source, communicator, schedule.problem, schedule.unit_norm)
    return Evaluator(source, communicator, schedule.problem, schedule.unit_norm)
