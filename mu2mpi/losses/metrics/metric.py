"""Base classes of metrics: what is measured of the output beside its loss."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from mu2mpi.core.registry import find, names

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ClassPredictions:
    """Predicted classes of n samples, with a weight for each of K labels: a probability, or 0 or 1."""

    best: NDArray[np.int64]  # predicted class, shape (n,)
    scores: Array  # score of each class, shape (n, K)
    weights: Array  # shape (n, K)

    @cached_property
    def class_weights(self) -> NDArray[Any]:
        """Weight of each class, shape (K,)."""
        return np.asarray(self.weights.sum(axis=0))

    @cached_property
    def correct(self) -> Array:
        """Weight with which each prediction is correct, shape (n,)."""
        return self.weights[np.arange(len(self.weights)), self.best]

    @cached_property
    def classes(self) -> NDArray[np.int64]:
        """Classes that occur."""
        return np.flatnonzero(self.class_weights)


@dataclass(frozen=True)
class NumberPredictions:
    """Predicted numbers of n samples, with a weight for each of K labels; numbers are scaled to [-1, 1]."""

    predicted: Array  # shape (n,)
    labels: Array  # shape (n, K), or (K,) if all samples have the same
    weights: Array  # shape (n, K)
    half_range: float  # size of 1 in the labels' own units

    @cached_property
    def errors(self) -> Array:
        """Prediction less label, shape (n, K)."""
        return self.predicted[:, np.newaxis] - self.labels

    def mean(self, values: Array) -> float:
        """Return the weighted mean of values of shape (n, K)."""
        return float(np.sum(self.weights * values)) / self.total

    @cached_property
    def total(self) -> float:
        """Sum of all weights."""
        return float(np.sum(self.weights))


class Metric(ABC):
    """A number that says how good predictions are; results call it by its name, with underscores."""

    kind: ClassVar[str] = "metrics"
    name: ClassVar[str]
    long_name: ClassVar[str]  # in `mu2mpi show`
    title: ClassVar[str]  # in tables, by default the same
    unit: ClassVar[Literal["1", "%", "label"]] = "1"  # %: a share, shown in per cent; label: unit of labels
    labels: ClassVar[Literal["classes", "numbers"]]
    higher_is_better: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        if not hasattr(cls, "title"):
            cls.title = cls.long_name

    @abstractmethod
    def value(self, predictions: Any) -> float:
        """Return the metric of `ClassPredictions` or `NumberPredictions`; NaN where it is not defined."""


def metrics() -> dict[str, Metric]:
    """Return all metrics by their names in result files."""
    return {name.replace("-", "_"): find("metrics", name) for name in names("metrics")}


def measured(labels: str, predictions: ClassPredictions | NumberPredictions) -> dict[str, float]:
    """Return the values of all metrics for such labels, by name."""
    return {name: metric.value(predictions) for name, metric in metrics().items() if metric.labels == labels}
