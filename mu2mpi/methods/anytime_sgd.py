"""Anytime-SGD: plain gradients at weighted averages of the iterates."""

import math
from typing import TYPE_CHECKING, Any

from mu2mpi.federation.estimators import AVERAGE, GRADIENT
from mu2mpi.federation.servers.base import shared_by
from mu2mpi.methods.base import Method, PresetOptions
from mu2mpi.problem.practical import (
    Choices,
    Facts,
    gathered,
    longest_at_averages,
    one_pass,
    rounds_of_one_pass,
)
from mu2mpi.registry import register

if TYPE_CHECKING:
    from mu2mpi.config.experiment import Experiment


@register
class AnytimeSgd(Method):
    """Cutkosky, "Anytime online-to-batch, optimism and acceleration", 2019."""

    name, title, summary = "anytime-sgd", "Anytime-SGD", "gradients at averages"
    options, presets = PresetOptions, ("preset",)
    estimator, query = GRADIENT, AVERAGE
    is_switched = takes_absence = True

    def preset(self, asked: "Experiment", options: Any, facts: Facts | None) -> dict[str, Any]:
        """Return the settings of the practical mode: beyond the theorems, from public facts alone.

        Noise of round t moves w by eta t, and the average x_T by what is left of that from t on, a share of
        1 - t^2 / T^2: the squares of both together are 8 T^3 / 105.
        """

        def eta_scale(chosen: Choices, facts: Facts) -> float:
            T = rounds_of_one_pass(asked, facts)
            by_noise = 4 * T * gathered(asked, chosen, shared_by(asked)) / math.sqrt(8 / 105 * T**3)
            return chosen.L * min(by_noise, longest_at_averages(asked, facts) / chosen.nearby)

        return {} if options.preset is None else one_pass(asked, facts, eta_scale)
