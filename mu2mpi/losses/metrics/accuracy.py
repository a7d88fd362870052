"""Classification accuracy."""

import numpy as np

from mu2mpi.core.registry import register
from mu2mpi.losses.metrics.metric import ClassPredictions, Metric


@register
class Accuracy(Metric):
    """Classification accuracy: share of samples whose class is predicted correctly."""

    name = long_name = "accuracy"
    unit, label_kind = "%", "classes"

    def value(self, predictions: ClassPredictions) -> float:
        return float(np.sum(predictions.correct_probabilities) / np.sum(predictions.true_class_weights))
