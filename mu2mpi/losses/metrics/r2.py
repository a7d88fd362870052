"""Coefficient of determination R^2."""

import math

from mu2mpi.core.registry import register
from mu2mpi.losses.metrics.metric import Metric, NumberPredictions

MIN_VARIANCE = 1e-12  # variance of numbers in [-1, 1] up to which it may be rounding error alone


@register
class R2(Metric):
    """Share of the labels' variance that the predictions explain."""

    name, title, long_name = "r2", "R²", "R2"
    label_kind = "numbers"

    def value(self, predictions: NumberPredictions) -> float:
        mean = predictions.weighted_mean(predictions.labels)
        variance = predictions.weighted_mean((predictions.labels - mean) ** 2)
        return r_squared(predictions.weighted_mean(predictions.errors**2), variance)


def r_squared(mean_squared_error: float, variance: float) -> float:
    """Return R^2 from the mean squared error and the labels' variance; NaN if the variance is 0."""
    return 1 - mean_squared_error / variance if variance > MIN_VARIANCE else math.nan
