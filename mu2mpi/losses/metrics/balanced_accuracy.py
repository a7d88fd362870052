"""Balanced accuracy."""

import numpy as np

from mu2mpi.core.registry import register
from mu2mpi.losses.metrics.base import ClassPredictions, Metric


@register
class BalancedAccuracy(Metric):
    """Mean over classes of the share of each that is classified correctly."""

    name = "balanced-accuracy"
    long_name = "balanced accuracy"
    unit = "%"
    labels = "classes"

    def value(self, predictions: ClassPredictions) -> float:
        """Return the mean recall over the classes that occur."""
        weights, classes = predictions.class_weights, predictions.classes
        correct = np.bincount(predictions.best, predictions.correct, len(weights))
        return float(np.mean(correct[classes] / weights[classes]))
