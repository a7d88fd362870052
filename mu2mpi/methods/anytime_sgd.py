"""Anytime-SGD: plain gradients at weighted averages of the iterates."""

import math
from typing import Any

from mu2mpi.core.registry import register
from mu2mpi.data.source import PublicFacts
from mu2mpi.federation.estimators import AVERAGE, GRADIENT
from mu2mpi.methods.method import Method, PresetOptions
from mu2mpi.methods.presets.practical import Choices, gathered, longest_at_averages, rounds_of_one_pass


@register
class AnytimeSgd(Method):
    """Cutkosky, "Anytime online-to-batch, optimism and acceleration", 2019."""

    name, title, summary = "anytime-sgd", "Anytime-SGD", "gradients at averages"
    options = PresetOptions
    estimator, query = GRADIENT, AVERAGE
    takes_absence = True

    def practical_scale(self, asked: Any, facts: PublicFacts, chosen: Choices) -> float:
        """Return it by noise, of which w has eta t of round t, and x_T in all sqrt(8 T^3 / 105) eta."""
        T = rounds_of_one_pass(asked, facts)
        by_noise = 4 * T * gathered(asked, chosen) / math.sqrt(8 / 105 * T**3)
        return chosen.L * min(by_noise, longest_at_averages(asked, facts) / chosen.nearby)
