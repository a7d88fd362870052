"""Metrics of predictions on the test set, and the predictions from which they are computed."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from mu2mpi.core.arrays import FloatArray, IntArray
from mu2mpi.core.registry import known_names, lookup, register

MIN_LABEL_VARIANCE = 1e-12  # variances of labels in [-1, 1] up to this may be rounding errors


@dataclass(frozen=True)
class ClassPredictions:
    """Predicted classes of n test samples, and the weight (0, 1 or a probability) of each true class."""

    predicted: IntArray  # predicted class, shape (n,)
    class_scores: FloatArray  # score of each class, shape (n, K)
    weights: FloatArray  # weight of each class as the true one, shape (n, K)

    @cached_property
    def true_class_weights(self) -> NDArray[Any]:
        """Weight of each of K true classes, summed over samples, shape (K,)."""
        return np.asarray(self.weights.sum(axis=0))

    @cached_property
    def correct_probabilities(self) -> FloatArray:
        """Probability that each sample's predicted class is true, shape (n,): 0 or 1 for known labels."""
        return self.weights[np.arange(len(self.weights)), self.predicted]

    @cached_property
    def occurring_classes(self) -> IntArray:
        """Indices of the classes that occur in the test set (of positive weight)."""
        return np.flatnonzero(self.true_class_weights)


@dataclass(frozen=True)
class NumberPredictions:
    """Predicted numbers of n test samples, and K weighted labels per sample, all scaled to [-1, 1]."""

    predicted: FloatArray  # predicted number, shape (n,)
    labels: FloatArray  # shape (n, K), or (K,) if all samples have the same
    weights: FloatArray  # weight (0, 1 or a probability) of each label, shape (n, K)
    label_half_range: float  # half the declared label range: 1 in the labels' own units

    @cached_property
    def errors(self) -> FloatArray:
        """Predicted numbers minus labels, shape (n, K)."""
        return self.predicted[:, np.newaxis] - self.labels

    def weighted_mean(self, values: FloatArray) -> float:
        """Return the mean of values per sample and label, shape (n, K), with the weights of the labels."""
        return float(np.sum(self.weights * values)) / float(np.sum(self.weights))


class Metric(ABC):
    """Quality measure of predictions on the test set, stored in result files by `name` with underscores."""

    component_kind: ClassVar[str] = "metrics"
    name: ClassVar[str]
    long_name: ClassVar[str]  # name in `mu2mpi show`
    table_title: ClassVar[str]  # name in tables; default: the long name
    unit: ClassVar[Literal["1", "%", "label"]] = "1"  # "%": share shown in per cent; "label": labels' units
    label_kind: ClassVar[Literal["classes", "numbers"]]
    higher_is_better: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        if not hasattr(cls, "table_title"):
            cls.table_title = cls.long_name

    @abstractmethod
    def value(self, predictions: Any) -> float:
        """Return the metric's value for `ClassPredictions` or `NumberPredictions`; NaN if it is undefined."""


@register
class Accuracy(Metric):
    """Classification accuracy: share of samples whose class is predicted correctly."""

    name = long_name = "accuracy"
    unit, label_kind = "%", "classes"

    def value(self, predictions: ClassPredictions) -> float:
        return float(np.sum(predictions.correct_probabilities) / np.sum(predictions.true_class_weights))


@register
class Auc(Metric):
    """Area under the ROC curve, one class against the rest, averaged over the classes of the test set."""

    name, table_title, long_name = "auc", "AUC", "area under the ROC"
    label_kind = "classes"

    def value(self, predictions: ClassPredictions) -> float:
        scores, weights = predictions.class_scores, predictions.weights
        if len(classes := predictions.occurring_classes) < 2:
            return math.nan
        rest = weights.sum(axis=1, keepdims=True) - weights
        return float(np.mean([_binary_auc(scores[:, k], weights[:, k], rest[:, k]) for k in classes]))


def _binary_auc(scores: FloatArray, positive_weights: FloatArray, negative_weights: FloatArray) -> float:
    """Return the probability that a positive sample scores above a negative one, ties counted half."""
    _, ranks = np.unique(scores, return_inverse=True)
    positives, negatives = np.bincount(ranks, positive_weights), np.bincount(ranks, negative_weights)
    lower_negatives = np.cumsum(negatives) - negatives
    return float(np.sum(positives * (lower_negatives + negatives / 2)) / (positives.sum() * negatives.sum()))


@register
class BalancedAccuracy(Metric):
    """Balanced accuracy: mean recall of the classes that occur in the test set."""

    name, long_name = "balanced-accuracy", "balanced accuracy"
    unit, label_kind = "%", "classes"

    def value(self, predictions: ClassPredictions) -> float:
        weights, classes = predictions.true_class_weights, predictions.occurring_classes
        correct = np.bincount(predictions.predicted, predictions.correct_probabilities, len(weights))
        return float(np.mean(correct[classes] / weights[classes]))


@register
class Mae(Metric):
    """Mean absolute error of numeric predictions, in the units of the labels."""

    name, long_name = "mae", "MAE"
    unit, label_kind = "label", "numbers"
    higher_is_better = False

    def value(self, predictions: NumberPredictions) -> float:
        return predictions.label_half_range * predictions.weighted_mean(np.abs(predictions.errors))


@register
class R2(Metric):
    """Coefficient of determination R^2: share of the labels' variance that the predictions explain."""

    name, table_title, long_name = "r2", "R²", "R2"
    label_kind = "numbers"

    def value(self, predictions: NumberPredictions) -> float:
        mean = predictions.weighted_mean(predictions.labels)
        variance = predictions.weighted_mean((predictions.labels - mean) ** 2)
        return r_squared(predictions.weighted_mean(predictions.errors**2), variance)


def r_squared(mean_squared_error: float, variance: float) -> float:
    """Return the coefficient of determination R^2; NaN if the variance of the labels is about 0."""
    return 1 - mean_squared_error / variance if variance > MIN_LABEL_VARIANCE else math.nan


@register
class Rmse(Metric):
    """Root mean squared error of numeric predictions, in the units of the labels."""

    name, long_name = "rmse", "RMSE"
    unit, label_kind = "label", "numbers"
    higher_is_better = False

    def value(self, predictions: NumberPredictions) -> float:
        return predictions.label_half_range * math.sqrt(predictions.weighted_mean(predictions.errors**2))


def all_metrics() -> dict[str, Metric]:
    """Return all registered evaluation metrics by their names in result files."""
    return {name.replace("-", "_"): lookup("metrics", name) for name in known_names("metrics")}


def compute_metrics(label_kind: str, predictions: ClassPredictions | NumberPredictions) -> dict[str, float]:
    """Return the values of all metrics for labels that are "classes" or "numbers", by metric name."""
    return {name: m.value(predictions) for name, m in all_metrics().items() if m.label_kind == label_kind}
