"""Balanced accuracy."""

import numpy as np

from mu2mpi.core.registry import register
from mu2mpi.losses.metrics.metric import ClassPredictions, Metric


@register
class BalancedAccuracy(Metric):
    """Balanced accuracy: mean recall of the classes that occur in the test set."""

    name, long_name = "balanced-accuracy", "balanced accuracy"
    unit, label_kind = "%", "classes"

    def value(self, predictions: ClassPredictions) -> float:
        weights, classes = predictions.true_class_weights, predictions.occurring_classes
        correct = np.bincount(predictions.predicted, predictions.correct_probabilities, len(weights))
        return float(np.mean(correct[classes] / weights[classes]))
