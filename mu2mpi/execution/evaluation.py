"""Test loss, score and metrics with the same bits on any number of ranks, and comparison with theory."""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from mu2mpi.core.arrays import FloatArray, IntArray
from mu2mpi.core.parallel import Communicator, block_range
from mu2mpi.data.source import DataSource, Labels, Samples
from mu2mpi.execution.evaluation_schedule import evaluation_cost_ns, run_cost_ns
from mu2mpi.federation.problem import Problem
from mu2mpi.federation.run_constants import RunConstants
from mu2mpi.losses.loss import Loss
from mu2mpi.losses.metrics.metric import R2, ClassPredictions, NumberPredictions, compute_metrics, r_squared
from mu2mpi.losses.model.ball import DUALITY_GAP_TOLERANCE_NATS, Minimum, minimise_over_ball
from mu2mpi.losses.model.linear import all_margins, inner, norm, sum_losses
from mu2mpi.losses.model.scaling import Scaling, append_bias
from mu2mpi.results.records import Theory

TEST_BLOCK_ROWS = 250  # Test samples per block: sums have the same bits on any number of ranks
MIN_OPTIMUM_SEARCH_NS = 1_500_000_000  # Smallest time limit of the search for the minimum of the test loss
MAX_OPTIMUM_SEARCH_DIMENSION = 2_000_000  # Largest d for which the minimum of the test loss is searched
MAX_GATHERED_MARGINS = 10_000_000  # Largest number of test margins gathered on rank 0 for metrics
MAX_CONFUSION_CLASSES = 1000  # Largest number of classes K for which a confusion matrix is stored
GRADIENT_COST_IN_EVALUATIONS = 4.0  # Time of a gradient of the test loss, in units of one evaluation
MIN_ROUNDING_UNIT = 2.0**-32  # Smallest unit of integer sums of block gradients

ValueT = TypeVar("ValueT")
Predictions = ClassPredictions | NumberPredictions
# Metrics of an output by name, and its confusion matrix of shape (K, K)
MetricsAndConfusion = tuple[dict[str, float], IntArray | None]

_cached_loss_minima = WeakKeyDictionary[DataSource, dict[tuple[Loss, Scaling, float, float], Minimum]]()


def max_search_gradients(constants: RunConstants, test_samples: int) -> int:
    """Estimate the number of test-loss gradients (5 to 1,000) that fit in 1.5 s or a tenth of the run."""
    gradient_cost = GRADIENT_COST_IN_EVALUATIONS * evaluation_cost_ns(constants, test_samples)
    return int(max(5, min(1000, max(0.1 * run_cost_ns(constants), MIN_OPTIMUM_SEARCH_NS) / gradient_cost)))


def stratified_test_rows(strata: range, sample_size: int, test_samples: int) -> IntArray:
    """Return random row indices into a test set: one per stratum, for a range of strata."""
    edges = np.arange(strata.start, strata.stop + 1) * test_samples // sample_size
    # PCG64 gives the same bits in every version of NumPy.
    generator = np.random.PCG64(0)
    random_words = generator.advance(strata.start).random_raw(len(strata))
    return edges[:-1] + (random_words % np.diff(edges).astype(np.uint64)).astype(np.int64)


class LocalTestBlocks:
    """Blocks of test samples of one rank, kept in memory or, if large, read chunk by chunk."""

    def __init__(
        self, source: DataSource, communicator: Communicator, scaling: Scaling, sample_size: int
    ) -> None:
        self.sample_size, self._source, self._scaling = sample_size, source, scaling  # size over all ranks
        blocks = block_range(math.ceil(sample_size / TEST_BLOCK_ROWS), communicator.size, communicator.rank)
        start, stop = blocks.start * TEST_BLOCK_ROWS, min(blocks.stop * TEST_BLOCK_ROWS, sample_size)
        chunk_size = TEST_BLOCK_ROWS * math.ceil(source.chunk_size(max(1, stop - start)) / TEST_BLOCK_ROWS)
        self._chunk_ranges = [range(k, min(k + chunk_size, stop)) for k in range(start, stop, chunk_size)]
        self._read_chunk(self._chunk_ranges[0] if self._chunk_ranges else range(0))

    def _read_chunk(self, chunk: range) -> None:
        self._chunk_in_memory, source = chunk, self._source
        rows = stratified_test_rows(chunk, self.sample_size, source.test_samples)
        self.samples: Samples = source.read_test(rows)
        self._scales = self._scaling.scale_factors(self.samples.features, source.feature_scale)

    def __iter__(self) -> Iterator[tuple[NDArray[np.generic], Labels, FloatArray]]:
        """Yield features as stored, shape (n, F - 1), labels and scaling factors of each test block."""
        for chunk in self._chunk_ranges:
            if chunk != self._chunk_in_memory:
                self._read_chunk(chunk)
            features, labels = self.samples.features, self.samples.labels
            for start in range(0, len(labels), TEST_BLOCK_ROWS):
                rows = slice(start, start + TEST_BLOCK_ROWS)
                yield features[rows], labels[rows], self._scales[rows]


class Evaluator:
    """Test loss, score, metrics and gradient on a test set that is distributed over the ranks.

    Earlier evaluations than the last use `sample_size` samples, by default all.
    """

    duality_gap_tolerance = DUALITY_GAP_TOLERANCE_NATS  # duality gap in nats at which the search stops

    def __init__(
        self, source: DataSource, communicator: Communicator, problem: Problem, sample_size: int | None = None
    ) -> None:
        self.source, self.communicator, self._scaling = source, communicator, problem.feature_scaling
        self._loss_function, self._sum_losses = problem.loss, problem.loss.compile_kernel(sum_losses)
        self._test_samples = source.test_samples
        # Exponent from which a sum over the test set fits in 64 bits.
        min_exponent = min(900, math.ceil(math.log2(problem.G) + math.log2(self._test_samples)) - 61)
        self._rounding_unit = max(MIN_ROUNDING_UNIT, math.ldexp(1.0, min_exponent))
        self.full_test_blocks = LocalTestBlocks(source, communicator, self._scaling, self._test_samples)
        self._sampled_test_blocks = self.full_test_blocks
        if sample_size is not None and sample_size < self._test_samples:
            self._sampled_test_blocks = LocalTestBlocks(source, communicator, self._scaling, sample_size)

    def evaluate(self, x: FloatArray, on_full_test_set: bool = True) -> tuple[float, float] | None:
        """Return mean loss and score (accuracy or R^2) of a model x on rank 0; None on the other ranks."""
        blocks = self.full_test_blocks if on_full_test_set else self._sampled_test_blocks
        block_sums, size, is_regression = [], blocks.sample_size, self._loss_function.label_kind == "numbers"
        for features, labels, scales in blocks:
            loss_and_score = self._sum_losses(x, features, labels, scales, self._scaling.bias_feature)
            label_sums = (float(np.sum(labels)), float(np.sum(labels**2))) if is_regression else ()
            block_sums.append((*loss_and_score, *label_sums))
        gathered = self.communicator.gather(block_sums)
        if gathered is None:
            return None
        losses, scores, *label_moments = zip(*itertools.chain(*gathered), strict=True)
        loss = math.fsum(losses) / size
        if not label_moments:
            return loss, sum(scores) / size
        mean, mean_square = (math.fsum(sums) / size for sums in label_moments)
        return loss, r_squared(math.fsum(scores) / size, mean_square - mean**2)

    def metrics(self, x: FloatArray) -> MetricsAndConfusion:
        """Return metrics and confusion matrix of the model x on every rank; none for huge test sets."""
        result: MetricsAndConfusion = {}, None
        if self._test_samples * len(x) > MAX_GATHERED_MARGINS:
            return result
        bias = self._scaling.bias_feature
        local = [(all_margins(x, append_bias(z, scales, bias)), y) for z, y, scales in self.full_test_blocks]
        if (gathered := self.communicator.gather(local)) is not None:
            margins, labels = map(np.concatenate, zip(*itertools.chain(*gathered), strict=True))
            confusion = confusion_matrix(self._loss_function, self.source.classes, margins, labels)
            predictions = sample_predictions(self._loss_function, self.source, margins, labels)
            result = compute_metrics(self._loss_function.label_kind, predictions), confusion
        return self.communicator.bcast_object(result)  # type: ignore[no-any-return]

    def gradient(self, x: FloatArray) -> tuple[float, FloatArray]:
        """Return the mean test loss of a model x and its gradient, shape (rows, F), equal on every rank."""
        rounded_sum, losses = np.zeros(x.shape, dtype=np.int64), []
        for features, labels, scales in self.full_test_blocks:
            z = append_bias(features, scales, self._scaling.bias_feature)
            loss, gradient = self._loss_function.loss_and_gradient(x, z, labels)
            losses.append(loss)
            rounded_sum += np.rint(gradient / self._rounding_unit).astype(np.int64)
        global_sum = self.communicator.allreduce(rounded_sum, np.empty_like(rounded_sum)).astype(np.float64)
        all_losses = itertools.chain(*self.communicator.allgather(losses))
        loss, unit = math.fsum(all_losses) / self._test_samples, self._rounding_unit / self._test_samples
        return loss, global_sum * unit


class ExactEvaluator:
    """Evaluation of expected loss and score on a finite population with known probabilities, on rank 0."""

    duality_gap_tolerance = 1e-12  # duality gap at which the search stops, limited by rounding

    def __init__(self, source: DataSource, communicator: Communicator, problem: Problem) -> None:
        self.source, self.communicator, self._loss_function = source, communicator, problem.loss
        self._joint_pmf = source.joint_probabilities()
        self._scaled_samples = problem.feature_scaling.scaled_samples(source.support, source.feature_scale)

    def evaluate(self, x: FloatArray, on_full_test_set: bool = True) -> tuple[float, float] | None:
        """Return expected loss and score (accuracy or R^2) of a model x on rank 0; None on other ranks."""
        if self.communicator.rank != 0:
            return None
        loss, predictions = self._expected_loss(x)[0], self._predictions(x)
        if isinstance(predictions, NumberPredictions):
            return loss, R2().value(predictions)
        return loss, float(np.sum(predictions.correct_probabilities))

    def metrics(self, x: FloatArray) -> MetricsAndConfusion:
        """Return metrics of the model x on every rank; a population has no confusion matrix."""
        label_kind = self._loss_function.label_kind
        return self._compute_on_rank_0(lambda: (compute_metrics(label_kind, self._predictions(x)), None))

    def gradient(self, x: FloatArray) -> tuple[float, FloatArray]:
        """Return the expected loss of a model x and its gradient, shape (rows, F), equal on every rank."""
        return self._compute_on_rank_0(lambda: self._expected_loss(x))

    def _expected_loss(self, x: FloatArray) -> tuple[float, FloatArray]:
        z, weights, labels = self._scaled_samples, self._joint_pmf, self.source.label_values
        return self._loss_function.expected_loss_and_gradient(x, z, weights, labels)

    def _predictions(self, x: FloatArray) -> Predictions:
        margins = all_margins(x, self._scaled_samples)
        return population_predictions(self._loss_function, self.source, margins, self._joint_pmf)

    def _compute_on_rank_0(self, compute: Callable[[], ValueT]) -> ValueT:
        value: ValueT = self.communicator.bcast_object(compute() if self.communicator.rank == 0 else None)
        return value


def confusion_matrix(loss: Loss, classes: int, margins: FloatArray, labels: Labels) -> IntArray | None:
    """Count samples by true and predicted class, shape (K, K); None for regression and for very large K."""
    if loss.label_kind == "numbers" or classes > MAX_CONFUSION_CLASSES:
        return None
    pairs = labels.astype(np.int64) * classes + loss.predict_classes(margins)
    return np.bincount(pairs, minlength=classes**2).reshape(classes, classes).astype(np.int64)


def sample_predictions(loss: Loss, source: DataSource, margins: FloatArray, labels: Labels) -> Predictions:
    """Return the predictions of equally weighted test samples from their margins, shape (n, rows)."""
    if loss.label_kind == "numbers":
        column = labels[:, np.newaxis].astype(np.float64)
        return population_predictions(loss, source, margins, np.ones((len(labels), 1)), column)
    weights = np.zeros((len(labels), source.classes))
    weights[np.arange(len(labels)), labels.astype(np.int64)] = 1.0
    return population_predictions(loss, source, margins, weights)


def population_predictions(
    loss: Loss, source: DataSource, margins: FloatArray, weights: FloatArray, labels: FloatArray | None = None
) -> Predictions:
    """Return predictions of n points from margins; weights, shape (n, K), are label probabilities."""
    if loss.label_kind == "classes":
        return ClassPredictions(loss.predict_classes(margins), loss.class_scores(margins), weights)
    low, high = source.label_range or (-1.0, 1.0)
    labels = source.label_values.astype(np.float64) if labels is None else labels
    return NumberPredictions(loss.predict_numbers(margins), labels, weights, (high - low) / 2)


def compare_with_theory(
    constants: RunConstants, evaluator: Evaluator | ExactEvaluator, x: FloatArray, loss: float
) -> Theory:
    """Compare the output x of a run, held by all ranks, with the theorem's bound and the constrained minimum.

    Collective. The minimum of the regularised test loss is searched once for all runs of a sweep, and not for
    models of more than `MAX_OPTIMUM_SEARCH_DIMENSION`.
    """
    bound, problem = constants.excess_loss_bound, constants.problem
    if problem.d > MAX_OPTIMUM_SEARCH_DIMENSION:
        return Theory(bound, *[math.nan] * 5)
    max_passes = max_search_gradients(constants, evaluator.source.test_samples)
    minima = _cached_loss_minima.setdefault(evaluator.source, {})
    key = problem.loss, problem.feature_scaling, problem.radius, problem.l2

    def l2_penalty(x: FloatArray) -> float:
        return problem.l2 * inner(x, x) / 2

    def objective(x: FloatArray) -> tuple[float, FloatArray]:
        loss, gradient = evaluator.gradient(x)
        return loss + l2_penalty(x), gradient + problem.l2 * x if problem.l2 else gradient

    # Ranks that worked on different runs of a sweep have different minima: rank 0 decides for all.
    minimum: Minimum | None = evaluator.communicator.bcast_object(minima.get(key))
    # An earlier search is reused only if a new one would find the same.
    tolerance = evaluator.duality_gap_tolerance
    is_reusable = minimum is not None and (
        minimum.passes == max_passes or (minimum.duality_gap <= tolerance and minimum.passes < max_passes)
    )
    if minimum is None or not is_reusable:
        start, limits = np.zeros((problem.model_rows, problem.features)), (max_passes, tolerance)
        minimum = minimise_over_ball(objective, start, problem.radius, problem.smoothness, *limits)
    minima[key] = minimum
    _, gradient = objective(x)
    return Theory(
        excess_loss_bound=bound,
        minimum_loss=minimum.value,
        minimum_gap=minimum.duality_gap,
        excess_loss=loss + l2_penalty(x) - minimum.value,
        initial_gradient_norm=minimum.initial_gradient_norm,
        final_gradient_norm=norm(gradient),
    )
