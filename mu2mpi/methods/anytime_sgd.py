"""Anytime-SGD: plain gradients at weighted averages of the iterates."""

from mu2mpi.federation.estimators import AVERAGE, GRADIENT
from mu2mpi.methods.base import Method
from mu2mpi.registry import register


@register
class AnytimeSgd(Method):
    """Cutkosky, "Anytime online-to-batch, optimism and acceleration", 2019."""

    name, title, summary = "anytime-sgd", "Anytime-SGD", "gradients at averages"
    estimator, query = GRADIENT, AVERAGE
    is_switched = takes_absence = True
