"""Anytime-SGD: gradients at weighted averages of the iterates."""

import math
from typing import Any

from mu2mpi.core.registry import register
from mu2mpi.data.source import PublicFacts
from mu2mpi.federation.estimators import AVERAGED_ITERATE, GRADIENT
from mu2mpi.methods.method import Method, PresetOptions
from mu2mpi.methods.presets.practical import PresetConstants, max_averaged_eta_scale, single_pass_rounds


@register
class AnytimeSgd(Method):
    """Anytime-SGD: Cutkosky, "Anytime online-to-batch, optimism and acceleration", 2019."""

    name, title, summary = "anytime-sgd", "Anytime-SGD", "gradients at averages"
    options = PresetOptions
    estimator, query_point = GRADIENT, AVERAGED_ITERATE
    supports_partial_participation = True

    def practical_eta_scale(
        self, experiment: Any, public_facts: PublicFacts, constants: PresetConstants
    ) -> float:
        """Return the preset's eta_scale, at which the noise std of x_T reaches `weight_noise_std`."""
        T = single_pass_rounds(experiment, public_facts)
        # The noise std of x_T is eta sqrt(8 T^3 / 105) times that of a message.
        noise_limit = 4 * T * constants.noise_limited_step_sum(experiment) / math.sqrt(8 / 105 * T**3)
        max_scale = max_averaged_eta_scale(experiment, public_facts)
        return constants.L * min(noise_limit, max_scale / constants.unit_margin_smoothness)
