"""Root mean squared error."""

import math

from mu2mpi.core.registry import register
from mu2mpi.losses.metrics.metric import Metric, NumberPredictions


@register
class Rmse(Metric):
    """Root mean squared error of numeric predictions, in the units of the labels."""

    name, long_name = "rmse", "RMSE"
    unit, label_kind = "label", "numbers"
    higher_is_better = False

    def value(self, predictions: NumberPredictions) -> float:
        return predictions.label_half_range * math.sqrt(predictions.weighted_mean(predictions.errors**2))
