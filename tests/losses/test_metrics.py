"""What an output is worth, against scikit-learn, on samples and on populations."""

import math

import numpy as np
import pytest
from helpers.plain_losses import random_labels
from helpers.property_tests import given
from helpers.sources import ArraySource, random_samples
from hypothesis import strategies as st
from sklearn import metrics as known

from mu2mpi.core.parallel import Communicator
from mu2mpi.core.registry import find, names
from mu2mpi.data.source import Samples
from mu2mpi.data.sources.population import Population
from mu2mpi.execution.evaluation import PIECE, Evaluator, ExactEvaluator, of_population, of_samples
from mu2mpi.losses.metrics.metric import measured

OF_CLASSES, OF_NUMBERS = ("softmax", "logistic", "smoothed-hinge"), ("squared", "huber", "poisson")
seeds = st.integers(0, 2**31)


def source_of(problem, test, classes=10):
    """Return a source with a test set, of which numbers are declared to lie between 0 and 8."""
    source = ArraySource(test, test, classes, 1.0)
    if problem.labels == "numbers":
        source.label_range = (0.0, 8.0)
    return source


@pytest.mark.parametrize("loss", OF_CLASSES)
@given(st.integers(2, 60), st.integers(2, 5), seeds, max_examples=60)
def test_measures_of_classes(loss, n, classes, seed):
    """Of classes that do not occur among the samples, too, and with many ties."""
    problem, rng = find("losses", loss), np.random.default_rng(seed)
    classes = 2 if loss == "logistic" else classes
    labels = rng.integers(0, rng.integers(1, classes + 1), n).astype(np.int32)
    margins = np.rint(4 * rng.standard_normal((n, problem.rows(classes)))) / 4
    source = source_of(problem, Samples(np.zeros((n, 1)), labels), classes)
    found = measured(problem.labels, of_samples(problem, source, margins, labels))
    best, scores = problem.best(margins), problem.scores(margins)
    there = np.unique(labels)
    assert found["accuracy"] == pytest.approx(known.accuracy_score(labels, best))
    of_each = [np.mean(best[labels == k] == k) for k in there]
    assert found["balanced_accuracy"] == pytest.approx(np.mean(of_each))
    if set(best) <= set(there.tolist()):
        assert found["balanced_accuracy"] == pytest.approx(known.balanced_accuracy_score(labels, best))
    if len(there) == 1:
        assert math.isnan(found["auc"])
        return
    areas = [known.roc_auc_score(labels == k, scores[:, k]) for k in there]
    assert found["auc"] == pytest.approx(np.mean(areas))
    if len(there) == classes > 2 and loss == "softmax":
        whole = known.roc_auc_score(labels, scores, multi_class="ovr", average="macro")
        assert found["auc"] == pytest.approx(whole)


@pytest.mark.parametrize("loss", OF_NUMBERS)
@given(st.integers(2, 60), seeds, max_examples=40)
def test_measures_of_numbers_are_in_their_own_units(loss, n, seed):
    problem, rng = find("losses", loss), np.random.default_rng(seed)
    labels = random_labels(rng, problem, n, 2)
    labels[:2] = -0.5, 0.5
    margins = rng.standard_normal((n, 1))
    source = source_of(problem, Samples(np.zeros((n, 1)), labels))
    found = measured(problem.labels, of_samples(problem, source, margins, labels))
    truth, predicted = 4 * labels + 4, 4 * problem.predictions(margins) + 4
    assert found["rmse"] == pytest.approx(known.root_mean_squared_error(truth, predicted))
    assert found["mae"] == pytest.approx(known.mean_absolute_error(truth, predicted))
    assert found["r2"] == pytest.approx(known.r2_score(truth, predicted))


@pytest.mark.parametrize("value", [0.1, -0.7, 1.0, 1 / 3])
@pytest.mark.parametrize("n", [3, 1000])
def test_nothing_is_explained_of_numbers_that_are_all_the_same(value, n):
    """Nor is it told how badly: their variance is nothing but rounding."""
    problem, labels = find("losses", "squared"), np.full(n, value)
    source = source_of(problem, Samples(np.zeros((n, 1)), labels))
    assert math.isnan(measured("numbers", of_samples(problem, source, np.zeros((n, 1)), labels))["r2"])
    assert math.isnan(Evaluator(source, Communicator(), problem).measure(np.zeros((1, 2)))[1])


@pytest.mark.parametrize("loss", [*OF_CLASSES, *OF_NUMBERS])
def test_on_a_population_they_are_those_of_samples_with_weights(loss):
    problem = find("losses", loss)
    population = Population(3, 2 if loss == "logistic" else 4, 0.3, 0.4, 0.0, 100, 1)
    if problem.labels == "numbers":
        population.take_numbers()
    x = np.random.default_rng(2).standard_normal((problem.rows(population.classes), 4))
    evaluator = ExactEvaluator(population, Communicator(), problem)
    (found, counts), weights = evaluator.metrics(x), population.probabilities()
    assert counts is None
    margins = np.c_[population.points, np.ones(len(population.points))] @ x.T
    rows, labels = np.nonzero(weights)
    with_weights = {"sample_weight": weights[rows, labels]}
    if problem.labels == "numbers":
        truth = labels.astype(float)
        half = (population.classes - 1) / 2
        predicted = half * (1 + problem.predictions(margins)[rows])
        assert found["r2"] == pytest.approx(known.r2_score(truth, predicted, **with_weights))
        assert found["mae"] == pytest.approx(known.mean_absolute_error(truth, predicted, **with_weights))
        rmse = known.root_mean_squared_error(truth, predicted, **with_weights)
        assert found["rmse"] == pytest.approx(rmse)
        assert evaluator.measure(x)[1] == pytest.approx(found["r2"])
        return
    best, scores = problem.best(margins)[rows], problem.scores(margins)[rows]
    assert found["accuracy"] == pytest.approx(known.accuracy_score(labels, best, **with_weights))
    assert found["accuracy"] == pytest.approx(evaluator.measure(x)[1])
    balanced = known.balanced_accuracy_score(labels, best, **with_weights)
    assert found["balanced_accuracy"] == pytest.approx(balanced)
    areas = [
        known.roc_auc_score(labels == k, scores[:, k], **with_weights) for k in range(population.classes)
    ]
    assert found["auc"] == pytest.approx(np.mean(areas))
    predictions = of_population(problem, population, margins, weights)
    assert measured(problem.labels, predictions) == pytest.approx(found)


class Part(Communicator):
    """One of several ranks, asked one after the other, of which the last knows what all have found."""

    def __init__(self, rank, size, gathered):
        self.rank, self.size, self.gathered = rank, size, gathered

    def gather(self, thing):
        self.gathered.append(thing)
        return self.gathered if len(self.gathered) == self.size else None

    def share(self, thing):
        return thing


@pytest.mark.parametrize("loss", ["softmax", "logistic", "squared"])
def test_they_have_the_same_bits_on_any_number_of_ranks(loss):
    problem, rng, n = find("losses", loss), np.random.default_rng(0), 5 * PIECE + 17
    features = random_samples(rng, n, 6, 2, np.float32).features
    source = source_of(problem, Samples(features, random_labels(rng, problem, n, 2)), 2)
    x = rng.standard_normal((problem.rows(2), 7))
    alone = Evaluator(source, Communicator(), problem)
    for size in (2, 3, 5):
        for ask in (Evaluator.measure, Evaluator.metrics):
            gathered: list = []
            parts = [ask(Evaluator(source, Part(rank, size, gathered), problem), x) for rank in range(size)]
            np.testing.assert_equal(parts[-1], ask(alone, x))


def test_no_metric_is_left_out():
    assert {"accuracy", "balanced_accuracy", "auc", "rmse", "mae", "r2"} == {
        name.replace("-", "_") for name in names("metrics")
    }
