"""Mean absolute error."""

import numpy as np

from mu2mpi.core.registry import register
from mu2mpi.losses.metrics.metric import Metric, NumberPredictions


@register
class Mae(Metric):
    """Mean absolute error of numeric predictions, in the units of the labels."""

    name, long_name = "mae", "MAE"
    unit, label_kind = "label", "numbers"
    higher_is_better = False

    def value(self, predictions: NumberPredictions) -> float:
        weighted_errors = predictions.weights * np.abs(predictions.errors)
        return predictions.label_half_range * float(np.sum(weighted_errors)) / predictions.total_weight
