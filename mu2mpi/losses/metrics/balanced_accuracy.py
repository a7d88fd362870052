"""Balanced accuracy."""

import numpy as np

from mu2mpi.core.registry import register
from mu2mpi.losses.metrics.metric import ClassPredictions, Metric


@register
class BalancedAccuracy(Metric):
    """Mean recall of the classes that occur."""

    name, long_name = "balanced-accuracy", "balanced accuracy"
    unit, labels = "%", "classes"

    def value(self, predictions: ClassPredictions) -> float:
        weights, classes = predictions.class_weights, predictions.classes
        correct = np.bincount(predictions.best, predictions.correct, len(weights))
        return float(np.mean(correct[classes] / weights[classes]))
