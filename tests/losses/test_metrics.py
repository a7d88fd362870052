"""Metrics against scikit-learn, on samples and on populations."""

import math

import numpy as np
import pytest
from helpers.plain_losses import random_labels
from helpers.property_tests import given
from helpers.simulations import evaluated_problem
from helpers.sources import ArraySource, random_samples
from hypothesis import strategies as st
from sklearn import metrics as known

from mu2mpi.core.parallel import Communicator
from mu2mpi.core.registry import known_names, lookup
from mu2mpi.data.source import Samples
from mu2mpi.data.sources.population import Population
from mu2mpi.execution.evaluation import (
    TEST_BLOCK_ROWS,
    Evaluator,
    ExactEvaluator,
    population_predictions,
    sample_predictions,
)
from mu2mpi.losses.metrics.metric import compute_metrics

OF_CLASSES, OF_NUMBERS = ("softmax", "logistic", "smoothed-hinge"), ("squared", "huber", "poisson")
seeds = st.integers(0, 2**31)


def source_of(loss_function, test, classes=10):
    """Return a source with a test set; numeric labels have the declared range 0 to 8."""
    source = ArraySource(test, test, classes, 1.0)
    if loss_function.label_kind == "numbers":
        source.label_range = (0.0, 8.0)
    return source


@pytest.mark.parametrize("loss", OF_CLASSES)
@given(st.integers(2, 60), st.integers(2, 5), seeds, max_examples=60)
def test_metrics_of_classes(loss, n, classes, seed):
    """Some classes do not occur among the samples, and many scores are tied."""
    loss_function, rng = lookup("losses", loss), np.random.default_rng(seed)
    classes = 2 if loss == "logistic" else classes
    labels = rng.integers(0, rng.integers(1, classes + 1), n).astype(np.int32)
    margins = np.rint(4 * rng.standard_normal((n, loss_function.model_rows(classes)))) / 4
    source = source_of(loss_function, Samples(np.zeros((n, 1)), labels), classes)
    found = compute_metrics(
        loss_function.label_kind, sample_predictions(loss_function, source, margins, labels)
    )
    best, scores = loss_function.predict_classes(margins), loss_function.class_scores(margins)
    occurring = np.unique(labels)
    assert found["accuracy"] == pytest.approx(known.accuracy_score(labels, best))
    recalls = [np.mean(best[labels == k] == k) for k in occurring]
    assert found["balanced_accuracy"] == pytest.approx(np.mean(recalls))
    if set(best) <= set(occurring.tolist()):
        assert found["balanced_accuracy"] == pytest.approx(known.balanced_accuracy_score(labels, best))
    if len(occurring) == 1:
        assert math.isnan(found["auc"])
        return
    areas = [known.roc_auc_score(labels == k, scores[:, k]) for k in occurring]
    assert found["auc"] == pytest.approx(np.mean(areas))
    if len(occurring) == classes > 2 and loss == "softmax":
        macro_auc = known.roc_auc_score(labels, scores, multi_class="ovr", average="macro")
        assert found["auc"] == pytest.approx(macro_auc)


@pytest.mark.parametrize("loss", OF_NUMBERS)
@given(st.integers(2, 60), seeds, max_examples=40)
def test_metrics_of_numbers_are_in_label_units(loss, n, seed):
    loss_function, rng = lookup("losses", loss), np.random.default_rng(seed)
    labels = random_labels(rng, loss_function, n, 2)
    labels[:2] = -0.5, 0.5
    margins = rng.standard_normal((n, 1))
    source = source_of(loss_function, Samples(np.zeros((n, 1)), labels))
    found = compute_metrics(
        loss_function.label_kind, sample_predictions(loss_function, source, margins, labels)
    )
    truth, predicted = 4 * labels + 4, 4 * loss_function.predict_numbers(margins) + 4
    assert found["rmse"] == pytest.approx(known.root_mean_squared_error(truth, predicted))
    assert found["mae"] == pytest.approx(known.mean_absolute_error(truth, predicted))
    assert found["r2"] == pytest.approx(known.r2_score(truth, predicted))


@pytest.mark.parametrize("value", [0.1, -0.7, 1.0, 1 / 3])
@pytest.mark.parametrize("n", [3, 1000])
def test_r2_of_equal_labels_is_nan(value, n):
    """Their variance is rounding error alone."""
    loss_function, labels = lookup("losses", "squared"), np.full(n, value)
    source = source_of(loss_function, Samples(np.zeros((n, 1)), labels))
    assert math.isnan(
        compute_metrics("numbers", sample_predictions(loss_function, source, np.zeros((n, 1)), labels))["r2"]
    )
    evaluator = Evaluator(source, Communicator(), evaluated_problem("squared"))
    assert math.isnan(evaluator.evaluate(np.zeros((1, 2)))[1])


@pytest.mark.parametrize("loss", [*OF_CLASSES, *OF_NUMBERS])
def test_metrics_of_a_population_are_those_of_weighted_samples(loss):
    loss_function = lookup("losses", loss)
    population = Population(3, 2 if loss == "logistic" else 4, 0.3, 0.4, 0.0, 100, 1)
    if loss_function.label_kind == "numbers":
        population.use_classes_as_numbers()
    x = np.random.default_rng(2).standard_normal((loss_function.model_rows(population.classes), 4))
    evaluator = ExactEvaluator(population, Communicator(), evaluated_problem(loss))
    (found, counts), weights = evaluator.metrics(x), population.joint_probabilities()
    assert counts is None
    margins = np.c_[population.support, np.ones(len(population.support))] @ x.T
    rows, labels = np.nonzero(weights)
    with_weights = {"sample_weight": weights[rows, labels]}
    if loss_function.label_kind == "numbers":
        truth = labels.astype(float)
        half = (population.classes - 1) / 2
        predicted = half * (1 + loss_function.predict_numbers(margins)[rows])
        assert found["r2"] == pytest.approx(known.r2_score(truth, predicted, **with_weights))
        assert found["mae"] == pytest.approx(known.mean_absolute_error(truth, predicted, **with_weights))
        rmse = known.root_mean_squared_error(truth, predicted, **with_weights)
        assert found["rmse"] == pytest.approx(rmse)
        assert evaluator.evaluate(x)[1] == pytest.approx(found["r2"])
        return
    best, scores = loss_function.predict_classes(margins)[rows], loss_function.class_scores(margins)[rows]
    assert found["accuracy"] == pytest.approx(known.accuracy_score(labels, best, **with_weights))
    assert found["accuracy"] == pytest.approx(evaluator.evaluate(x)[1])
    balanced = known.balanced_accuracy_score(labels, best, **with_weights)
    assert found["balanced_accuracy"] == pytest.approx(balanced)
    areas = [
        known.roc_auc_score(labels == k, scores[:, k], **with_weights) for k in range(population.classes)
    ]
    assert found["auc"] == pytest.approx(np.mean(areas))
    predictions = population_predictions(loss_function, population, margins, weights)
    assert compute_metrics(loss_function.label_kind, predictions) == pytest.approx(found)


class Part(Communicator):
    """Communicator of one of several ranks that run one after the other; the last one gathers from all."""

    def __init__(self, rank, size, gathered):
        self.rank, self.size, self.gathered = rank, size, gathered

    def gather(self, thing):
        self.gathered.append(thing)
        return self.gathered if len(self.gathered) == self.size else None

    def bcast_object(self, thing):
        return thing


@pytest.mark.parametrize("loss", ["softmax", "logistic", "squared"])
def test_metrics_have_the_same_bits_on_any_number_of_ranks(loss):
    loss_function, rng, n = lookup("losses", loss), np.random.default_rng(0), 5 * TEST_BLOCK_ROWS + 17
    features = random_samples(rng, n, 6, 2, np.float32).features
    source = source_of(loss_function, Samples(features, random_labels(rng, loss_function, n, 2)), 2)
    x = rng.standard_normal((loss_function.model_rows(2), 7))
    problem = evaluated_problem(loss)
    alone = Evaluator(source, Communicator(), problem)
    for size in (2, 3, 5):
        for ask in (Evaluator.evaluate, Evaluator.metrics):
            gathered: list = []
            parts = [ask(Evaluator(source, Part(rank, size, gathered), problem), x) for rank in range(size)]
            np.testing.assert_equal(parts[-1], ask(alone, x))


def test_all_metrics_are_tested():
    assert {"accuracy", "balanced_accuracy", "auc", "rmse", "mae", "r2"} == {
        name.replace("-", "_") for name in known_names("metrics")
    }
