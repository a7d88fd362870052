"""Classification accuracy."""

import numpy as np

from mu2mpi.core.registry import register
from mu2mpi.losses.metrics.metric import ClassPredictions, Metric


@register
class Accuracy(Metric):
    """Share of samples that are classified correctly."""

    name = long_name = "accuracy"
    unit, label_kind = "%", "classes"

    def value(self, predictions: ClassPredictions) -> float:
        return float(np.sum(predictions.correct_weights) / np.sum(predictions.class_weights))
