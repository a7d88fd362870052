"""Label-skew partition: class proportions of each machine drawn from a Dirichlet distribution."""

import re

from mu2mpi.core.arrays import IntArray
from mu2mpi.core.errors import InputError
from mu2mpi.core.lazy import np
from mu2mpi.core.options import MAX_REAL_OPTION, MIN_REAL_OPTION
from mu2mpi.core.registry import register
from mu2mpi.data.partition import LabelSkewPartition, RandomState


@register
class DirichletPartition(LabelSkewPartition):
    """Partition with Dirichlet class proportions per machine, more skewed for smaller concentrations A."""

    name, option_syntax = "dirichlet", "dirichlet:A"
    summary = "random class proportions, the smaller A the more skewed"

    def __init__(self, value: str | None = None) -> None:
        is_number = re.fullmatch(r"\d*\.?\d+(?:e-?\d\d?)?", value or "")
        if not is_number or not MIN_REAL_OPTION <= float(value or 0) <= MAX_REAL_OPTION:
            raise InputError("should be dirichlet:A with a positive number A such as dirichlet:0.3")
        self.concentration = float(value or 0)

    def class_counts(self, class_sizes: IntArray, machines: int, samples: int, rng: RandomState) -> IntArray:
        """Draw class counts per machine, from proportions p_k ~ n_k Gamma(A) with the size n_k of class k.

        See Hsu, Qi and Brown, "Measuring the effects of non-identical data distribution", 2019.
        """
        remaining, counts = class_sizes.copy(), np.zeros((machines, len(class_sizes)), np.int64)
        for own_counts in counts:
            # In logarithms, since a Gamma(A) variable may underflow.
            log_gamma = np.log(rng.standard_gamma(self.concentration + 1, len(class_sizes)))
            log_gamma += np.log1p(-rng.random_sample(len(class_sizes))) / self.concentration
            log_gamma[class_sizes == 0] = -np.inf
            weights = np.exp(log_gamma - log_gamma.max()) * class_sizes
            while (shortfall := samples - own_counts.sum()) > 0:
                weights = np.where(remaining > 0, weights, 0.0)
                positive = weights if weights.sum() > 0 else remaining.astype(float)
                new_counts = np.minimum(rng.multinomial(shortfall, positive / positive.sum()), remaining)
                own_counts += new_counts
                remaining -= new_counts
        return counts
