"""Base class of evaluation metrics, and the test-set predictions from which they are computed."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from mu2mpi.core.arrays import FloatArray, IntArray
from mu2mpi.core.registry import known_names, lookup


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
        return float(np.sum(self.weights * values)) / self.total_weight

    @cached_property
    def total_weight(self) -> float:
        """Sum of the weights of all samples' labels."""
        return float(np.sum(self.weights))


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


def all_metrics() -> dict[str, Metric]:
    """Return all registered evaluation metrics by their names in result files."""
    return {name.replace("-", "_"): lookup("metrics", name) for name in known_names("metrics")}


def compute_metrics(label_kind: str, predictions: ClassPredictions | NumberPredictions) -> dict[str, float]:
    """Return the values of all metrics for labels that are "classes" or "numbers", by metric name."""
    return {name: m.value(predictions) for name, m in all_metrics().items() if m.label_kind == label_kind}
