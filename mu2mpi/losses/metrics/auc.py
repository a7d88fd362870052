"""Area under the ROC curve."""

import math

import numpy as np

from mu2mpi.core.registry import register
from mu2mpi.losses.metrics.metric import Array, ClassPredictions, Metric


@register
class Auc(Metric):
    """Area under the ROC curve: the mean over classes that occur, each against the rest."""

    name, title, long_name = "auc", "AUC", "area under the ROC"
    labels = "classes"

    def value(self, predictions: ClassPredictions) -> float:
        scores, weights, classes = predictions.scores, predictions.weights, predictions.classes
        if len(classes) < 2:
            return math.nan
        totals = weights.sum(axis=1)
        return float(np.mean([_area(scores[:, k], weights[:, k], totals - weights[:, k]) for k in classes]))


def _area(scores: Array, positive: Array, negative: Array) -> float:
    """Return the probability that a positive sample scores higher than a negative one; ties count half."""
    _, group = np.unique(scores, return_inverse=True)
    positives, negatives = np.bincount(group, positive), np.bincount(group, negative)
    below = np.cumsum(negatives) - negatives
    return float(np.sum(positives * (below + negatives / 2)) / (positives.sum() * negatives.sum()))
