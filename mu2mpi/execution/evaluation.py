"""Loss and score, with the same bits on any number of ranks, next to what theory says of a run."""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from mu2mpi.core.parallel import Communicator, block
from mu2mpi.data.source import Labels, Samples, Source
from mu2mpi.execution.evaluation_schedule import evaluation_cost, run_cost
from mu2mpi.federation.run_constants import RunConstants
from mu2mpi.losses.loss import Problem
from mu2mpi.losses.metrics.metric import ClassPredictions, NumberPredictions, measured
from mu2mpi.losses.metrics.r2 import R2, explained_share
from mu2mpi.losses.model.ball import TOLERANCE, Minimum, minimise_over_ball
from mu2mpi.losses.model.linear import all_margins, inner, norm, sum_losses
from mu2mpi.losses.model.scaling import Scaling, with_bias
from mu2mpi.results.records import Theory

# Test samples whose losses one rank sums in one go: the pieces, and not the ranks, determine the bits
PIECE = 250
FREE_PASSES = 1_500_000_000  # Nanoseconds that a run of any size may spend on gradients on the test set
MOST_PARAMETERS = 2_000_000  # Of models whose loss is compared with the smallest
MOST_OUTPUTS = 10_000_000  # Margins of test samples that rank 0 may gather in the end
Array = NDArray[np.float64]
Answer = TypeVar("Answer")
Predictions = ClassPredictions | NumberPredictions

# Measures of an output by name, and its confusion matrix
Measures = tuple[dict[str, float], NDArray[np.int64] | None]
MOST_CONFUSED = 1000  # Classes whose confusion matrix is worth its size in a file
PLAIN = Scaling()

PER_GRADIENT_PASS = 4.0  # What a pass that computes gradients takes, in evaluations
# Spacing of the integers as which gradients of pieces are summed; wider where 64 bits would not do
GRID = 2.0**-32

_found: WeakKeyDictionary[Source, dict[tuple[Problem, Scaling, float, float], Minimum]] = WeakKeyDictionary()


def affordable_passes(constants: RunConstants, test_samples: int) -> int:
    """Return how many gradients on the test set, 5 to 1,000, take about 1.5 s or a tenth of a run's time."""
    one = PER_GRADIENT_PASS * evaluation_cost(constants, test_samples)
    return int(max(5, min(1000, max(0.1 * run_cost(constants), FREE_PASSES) / one)))


def spread_rows(places: range, share: int, whole: int) -> NDArray[np.int64]:
    """Return the rows at some places of a share of a test set, which its size and the whole's decide."""
    edges = np.arange(places.start, places.stop + 1) * whole // share
    # The bits of this generator are the same in every version of numpy.
    chance = np.random.PCG64(0)
    drawn = chance.advance(places.start).random_raw(len(places)) % np.diff(edges).astype(np.uint64)
    return edges[:-1] + drawn.astype(np.int64)


class Pieces:
    """The part of a share of the test set that a rank has, read once or, where it is large, in chunks."""

    def __init__(self, source: Source, communicator: Communicator, scaling: Scaling, share: int) -> None:
        self.size, self._source, self._scaling = share, source, scaling
        pieces = block(math.ceil(share / PIECE), communicator.size, communicator.rank)
        start, stop = pieces.start * PIECE, min(pieces.stop * PIECE, share)
        at_once = PIECE * math.ceil(source.at_once(max(1, stop - start)) / PIECE)
        self._chunks = [range(k, min(k + at_once, stop)) for k in range(start, stop, at_once)]
        self._read(self._chunks[0] if self._chunks else range(0))

    def _read(self, chunk: range) -> None:
        self._held, source = chunk, self._source
        self.samples: Samples = source.test(spread_rows(chunk, self.size, source.test_samples))
        self._scales = self._scaling.factors(self.samples.features, source.scale)

    def __iter__(self) -> Iterator[tuple[NDArray[np.generic], Labels, Array]]:
        """Yield features as stored, shape (n, F - 1), their labels and their scales."""
        for chunk in self._chunks:
            if chunk != self._held:
                self._read(chunk)
            features, labels = self.samples.features, self.samples.labels
            for start in range(0, len(labels), PIECE):
                piece = slice(start, start + PIECE)
                yield features[piece], labels[piece], self._scales[piece]


class Evaluator:
    """Loss and score on a test set that is split over the ranks, or on a share of so many samples of it."""

    tolerance = TOLERANCE  # nats to which the smallest loss on the test set is worth knowing

    def __init__(
        self,
        source: Source,
        communicator: Communicator,
        problem: Problem,
        scaling: Scaling = PLAIN,
        G: float = 1.0,
        share: int | None = None,
    ) -> None:
        self._source, self._communicator, self._problem = source, communicator, problem
        self._sum_losses, self._scaling = problem.kernel(sum_losses), scaling
        self._size = source.test_samples
        widest = min(900, math.ceil(math.log2(G) + math.log2(self._size)) - 61)
        self._grid = max(GRID, math.ldexp(1.0, widest))
        self.whole = Pieces(source, communicator, scaling, self._size)
        self._share = self.whole
        if share is not None and share < self._size:
            self._share = Pieces(source, communicator, scaling, share)

    def measure(self, x: Array, whole: bool = True) -> tuple[float, float] | None:
        """Return on rank 0 the mean loss of x, which all ranks hold, and its score: accuracy, or R^2."""
        pieces = self.whole if whole else self._share
        sums, size, numbers = [], pieces.size, self._problem.labels == "numbers"
        for features, labels, scales in pieces:
            of_piece = self._sum_losses(x, features, labels, scales, self._scaling.bias)
            moments = (float(np.sum(labels)), float(np.sum(labels**2))) if numbers else ()
            sums.append((*of_piece, *moments))
        gathered = self._communicator.gather(sums)
        if gathered is None:
            return None
        losses, scores, *of_labels = zip(*itertools.chain(*gathered), strict=True)
        loss = math.fsum(losses) / size
        if not of_labels:
            return loss, sum(scores) / size
        mean, mean_square = (math.fsum(of) / size for of in of_labels)
        return loss, explained_share(math.fsum(scores) / size, mean_square - mean**2)

    def metrics(self, x: Array) -> Measures:
        """Return what else is worth knowing of the output x; the same on every rank."""
        shared: Measures = {}, None
        if self._size * len(x) > MOST_OUTPUTS:
            return shared
        mine = [(all_margins(x, with_bias(z, s, self._scaling.bias)), y) for z, y, s in self.whole]
        if (gathered := self._communicator.gather(mine)) is not None:
            margins, labels = map(np.concatenate, zip(*itertools.chain(*gathered), strict=True))
            confusion = confusion_of(self._problem, self._source.classes, margins, labels)
            predictions = of_samples(self._problem, self._source, margins, labels)
            shared = measured(self._problem.labels, predictions), confusion
        return self._communicator.share(shared)  # type: ignore[no-any-return]

    def gradient(self, x: Array) -> tuple[float, Array]:
        """Return the mean loss of x and its gradient, shape (rows, F), the same bits on every rank."""
        total, losses = np.zeros(x.shape, dtype=np.int64), []
        for features, labels, scales in self.whole:
            z = with_bias(features, scales, self._scaling.bias)
            loss, gradient = self._problem.loss_and_gradient(x, z, labels)
            losses.append(loss)
            total += np.rint(gradient / self._grid).astype(np.int64)
        summed = self._communicator.allreduce(total, np.empty_like(total)).astype(np.float64)
        everyones = itertools.chain(*self._communicator.allgather(losses))
        return math.fsum(everyones) / self._size, summed * (self._grid / self._size)


class ExactEvaluator:
    """Expected loss and score on a population, as sums over all of its points; on rank 0 alone."""

    tolerance = 1e-12  # rounding leaves no more

    def __init__(
        self, population: Source, communicator: Communicator, problem: Problem, scaling: Scaling = PLAIN
    ) -> None:
        self._communicator, self._problem, self._population = communicator, problem, population
        self._weights = population.probabilities()
        self._z = scaling.samples(population.points, population.scale)

    def measure(self, x: Array, whole: bool = True) -> tuple[float, float] | None:
        """Return on rank 0 f(x), and the probability that x is right, or the R^2 of its predictions."""
        if self._communicator.rank != 0:
            return None
        loss, predictions = self._expected(x)[0], self._predictions(x)
        if isinstance(predictions, NumberPredictions):
            return loss, R2().value(predictions)
        return loss, float(np.sum(predictions.correct))

    def metrics(self, x: Array) -> Measures:
        """Return what else is worth knowing of the output x; the same on every rank. There are no counts."""
        return self._on_first(lambda: (measured(self._problem.labels, self._predictions(x)), None))

    def gradient(self, x: Array) -> tuple[float, Array]:
        """Return f(x) and its gradient, shape (rows, F), the same bits on every rank."""
        return self._on_first(lambda: self._expected(x))

    def _expected(self, x: Array) -> tuple[float, Array]:
        return self._problem.expected(x, self._z, self._weights, self._population.values)

    def _predictions(self, x: Array) -> Predictions:
        return of_population(self._problem, self._population, all_margins(x, self._z), self._weights)

    def _on_first(self, compute: Callable[[], Answer]) -> Answer:
        """Return on every rank what rank 0 computes."""
        answer: Answer = self._communicator.share(compute() if self._communicator.rank == 0 else None)
        return answer


def confusion_of(problem: Problem, classes: int, margins: Array, labels: Labels) -> NDArray[np.int64] | None:
    """Return how many samples of each class are taken for each, shape (K, K), unless K is large."""
    if problem.labels == "numbers" or classes > MOST_CONFUSED:
        return None
    pairs = labels.astype(np.int64) * classes + problem.best(margins)
    return np.bincount(pairs, minlength=classes**2).reshape(classes, classes).astype(np.int64)


def of_samples(problem: Problem, source: Source, margins: Array, labels: Labels) -> Predictions:
    """Return the predictions of samples with equal weights, by their margins of shape (n, rows)."""
    if problem.labels == "numbers":
        known = labels[:, np.newaxis].astype(np.float64)
        return of_population(problem, source, margins, np.ones((len(labels), 1)), known)
    weights = np.zeros((len(labels), source.classes))
    weights[np.arange(len(labels)), labels.astype(np.int64)] = 1.0
    return of_population(problem, source, margins, weights)


def of_population(
    problem: Problem, source: Source, margins: Array, weights: Array, labels: Array | None = None
) -> Predictions:
    """Return the predictions of samples with weights, shape (n, K), of K labels: by default the source's."""
    if problem.labels == "classes":
        return ClassPredictions(problem.best(margins), problem.scores(margins), weights)
    low, high = source.label_range or (-1.0, 1.0)
    labels = source.values.astype(np.float64) if labels is None else labels
    return NumberPredictions(problem.predictions(margins), labels, weights, (high - low) / 2)


def assess(
    constants: RunConstants,
    source: Source,
    evaluator: Evaluator | ExactEvaluator,
    x: NDArray[np.float64],
    loss: float,
    communicator: Communicator,
) -> Theory:
    """Compare a finished run, of which all ranks hold the output x and its loss, with theory.

    The smallest loss over K, with the regulariser, is found once for all runs of a sweep. A model of more
    than `MOST_PARAMETERS` has only the bound. All ranks must call this, and each gets the same.
    """
    bound, task = constants.loss_bound, constants.task
    if task.d > MOST_PARAMETERS:
        return Theory(bound, *[math.nan] * 5)
    most_passes = affordable_passes(constants, source.test_samples)
    found = _found.setdefault(source, {})
    problem = task.problem, task.scaling, task.radius, task.l2

    def penalty(x: NDArray[np.float64]) -> float:
        return task.l2 * inner(x, x) / 2

    def objective(x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        loss, gradient = evaluator.gradient(x)
        return loss + penalty(x), gradient + task.l2 * x if task.l2 else gradient

    # In a sweep, ranks that worked on other runs may know other minima: all go by what rank 0 knows.
    minimum: Minimum | None = communicator.share(found.get(problem))
    # An earlier search counts only if one for this run would have found the same.
    is_same = minimum is not None and (
        minimum.passes == most_passes or (minimum.gap <= evaluator.tolerance and minimum.passes < most_passes)
    )
    if minimum is None or not is_same:
        start, limits = np.zeros((task.rows, task.features)), (most_passes, evaluator.tolerance)
        minimum = minimise_over_ball(objective, start, task.radius, task.smoothness, *limits)
    found[problem] = minimum
    _, gradient = objective(x)
    return Theory(
        excess_loss_bound=bound,
        minimum_loss=minimum.value,
        minimum_gap=minimum.gap,
        excess_loss=loss + penalty(x) - minimum.value,
        first_slope=minimum.first_slope,
        last_slope=norm(gradient),
    )
