"""Area under the ROC curve."""

import math

import numpy as np

from mu2mpi.core.registry import register
from mu2mpi.losses.metrics.metric import Array, ClassPredictions, Metric


@register
class Auc(Metric):
    """Area under the ROC curve, one class against the rest, averaged over the classes that occur."""

    name, title, long_name = "auc", "AUC", "area under the ROC"
    label_kind = "classes"

    def value(self, predictions: ClassPredictions) -> float:
        scores, weights, classes = predictions.scores, predictions.weights, predictions.occurring_classes
        if len(classes) < 2:
            return math.nan
        totals = weights.sum(axis=1)
        return float(np.mean([_auc(scores[:, k], weights[:, k], totals - weights[:, k]) for k in classes]))


def _auc(scores: Array, positive: Array, negative: Array) -> float:
    """Return the probability that a positive sample scores above a negative one, ties counted half."""
    _, group = np.unique(scores, return_inverse=True)
    positives, negatives = np.bincount(group, positive), np.bincount(group, negative)
    below = np.cumsum(negatives) - negatives
    return float(np.sum(positives * (below + negatives / 2)) / (positives.sum() * negatives.sum()))
