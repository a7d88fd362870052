"""Coefficient of determination R^2."""

import math

from mu2mpi.core.registry import register
from mu2mpi.losses.metrics.metric import Metric, NumberPredictions

MIN_LABEL_VARIANCE = 1e-12  # variances of labels in [-1, 1] up to this may be rounding errors


@register
class R2(Metric):
    """Coefficient of determination R^2: share of the labels' variance that the predictions explain."""

    name, table_title, long_name = "r2", "R²", "R2"
    label_kind = "numbers"

    def value(self, predictions: NumberPredictions) -> float:
        mean = predictions.weighted_mean(predictions.labels)
        variance = predictions.weighted_mean((predictions.labels - mean) ** 2)
        return r_squared(predictions.weighted_mean(predictions.errors**2), variance)


def r_squared(mean_squared_error: float, variance: float) -> float:
    """Return the coefficient of determination R^2; NaN if the variance of the labels is about 0."""
    return 1 - mean_squared_error / variance if variance > MIN_LABEL_VARIANCE else math.nan
