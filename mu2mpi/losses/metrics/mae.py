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
        errors = np.abs(predictions.errors)
        return predictions.half_range * float(np.sum(predictions.weights * errors)) / predictions.total_weight
