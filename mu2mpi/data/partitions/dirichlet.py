"""Proportions of classes by Dirichlet distributions."""

from __future__ import annotations

import re

from mu2mpi.core.errors import InputError
from mu2mpi.core.lazy import np
from mu2mpi.core.options import LEAST, MOST
from mu2mpi.core.registry import register
from mu2mpi.data.partition import Integers, LabelPartition


@register
class Dirichlet(LabelPartition):
    """Classes in proportions of each machine's own: the smaller A, the more they differ."""

    name, form = "dirichlet", "dirichlet:A"
    summary = "classes in random proportions, the smaller A the less even"

    def __init__(self, value: str | None = None) -> None:
        is_number = re.fullmatch(r"\d*\.?\d+(?:e-?\d\d?)?", value or "")
        if not is_number or not LEAST <= float(value or 0) <= MOST:
            raise InputError("should be dirichlet:A with a positive number A such as dirichlet:0.3")
        self.concentration = float(value or 0)

    def shares(self, sizes: Integers, machines: int, each: int, random: np.random.RandomState) -> Integers:
        """Return random proportions: those of the classes in all data, each times a Gamma(A) variable.

        Machines draw one after the other from what is left. See Hsu, Qi and Brown, "Measuring the effects of
        non-identical data distribution for federated visual classification", 2019.
        """
        left, shares = sizes.copy(), np.zeros((machines, len(sizes)), np.int64)
        for share in shares:
            # The logarithm of a Gamma(A) variable, which itself may be too small for a floating-point number.
            log_gamma = np.log(random.standard_gamma(self.concentration + 1, len(sizes)))
            log_gamma += np.log1p(-random.random_sample(len(sizes))) / self.concentration
            log_gamma[sizes == 0] = -np.inf
            weights = np.exp(log_gamma - log_gamma.max()) * sizes
            while (wanted := each - share.sum()) > 0:
                weights = np.where(left > 0, weights, 0.0)
                likely = weights if weights.sum() > 0 else left.astype(float)
                drawn = np.minimum(random.multinomial(wanted, likely / likely.sum()), left)
                share += drawn
                left -= drawn
        return shares
