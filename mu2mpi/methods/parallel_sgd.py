"""Noisy parallel SGD: plain gradients at the iterates, of which the mean is put out."""

import math
from typing import Any

from mu2mpi.core.registry import register
from mu2mpi.data.source import PublicFacts
from mu2mpi.federation.estimators import GRADIENT, ITERATE
from mu2mpi.methods.method import Method, PresetOptions
from mu2mpi.methods.presets.practical import STEP, Choices, gathered, rounds_of_one_pass


@register
class ParallelSgd(Method):
    """Dekel et al., "Optimal distributed online prediction using mini-batches", 2012."""

    name, title, summary = "parallel-sgd", "noisy parallel SGD", "gradients at iterates"
    options = PresetOptions
    estimator, query = GRADIENT, ITERATE
    takes_absence = takes_mean = True

    def practical_scale(self, asked: Any, facts: PublicFacts, chosen: Choices) -> float:
        """Return it by noise: eta sigma sqrt(T), of which the mean of all has a third in the square."""
        spread = math.sqrt(rounds_of_one_pass(asked, facts) / 3)
        eta = gathered(asked, chosen) / spread
        return chosen.L * min(eta, STEP / chosen.nearby)
