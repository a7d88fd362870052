"""Coefficient of determination."""

import math

from mu2mpi.core.registry import register
from mu2mpi.losses.metrics.metric import Metric, NumberPredictions

ROUNDING = 1e-12  # variance of numbers in [-1, 1] that may consist of rounding errors alone


@register
class R2(Metric):
    """Share of the labels' variance that predictions explain."""

    name, title, long_name = "r2", "R²", "R2"
    labels = "numbers"

    def value(self, predictions: NumberPredictions) -> float:
        mean = predictions.mean(predictions.labels)
        variance = predictions.mean((predictions.labels - mean) ** 2)
        return explained_share(predictions.mean(predictions.errors**2), variance)


def explained_share(mean_squared_error: float, variance: float) -> float:
    """Return R^2 from the mean squared error and the variance of labels; NaN without variance."""
    return 1 - mean_squared_error / variance if variance > ROUNDING else math.nan
