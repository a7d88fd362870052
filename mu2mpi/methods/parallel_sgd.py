"""Noisy parallel SGD: plain gradients at the iterates, of which the mean is put out."""

from mu2mpi.federation.estimators import GRADIENT, ITERATE
from mu2mpi.methods.base import Method
from mu2mpi.registry import register


@register
class ParallelSgd(Method):
    """Dekel et al., "Optimal distributed online prediction using mini-batches", 2012."""

    name, title, summary = "parallel-sgd", "noisy parallel SGD", "gradients at iterates"
    estimator, query = GRADIENT, ITERATE
    is_switched = takes_absence = True
    takes_mean = True
