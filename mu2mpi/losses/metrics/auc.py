"""Area under the ROC curve."""

import math

import numpy as np

from mu2mpi.core.arrays import FloatArray
from mu2mpi.core.registry import register
from mu2mpi.losses.metrics.metric import ClassPredictions, Metric


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
