"""Anytime-SGD: gradients at weighted averages of the iterates."""

import math

from mu2mpi.core.registry import register
from mu2mpi.federation.estimators import AVERAGED_ITERATE, GRADIENT_ESTIMATOR
from mu2mpi.methods.method import Method, PresetOptions
from mu2mpi.methods.presets.practical import PresetConstants


@register
class AnytimeSgd(Method):
    """Anytime-SGD: Cutkosky, "Anytime online-to-batch, optimism and acceleration", 2019."""

    name, title, summary = "anytime-sgd", "Anytime-SGD", "gradients at averages"
    options, estimator, query_point = PresetOptions, GRADIENT_ESTIMATOR, AVERAGED_ITERATE
    supports_partial_participation = True

    def practical_eta_scale(self, constants: PresetConstants) -> float:
        """Return the preset's eta_scale, at which the noise std of x_T reaches `model_noise_std`."""
        T, step_sum = constants.single_pass_rounds, constants.noise_limited_step_sum()
        # The noise std of x_T is eta sqrt(8 T^3 / 105) times that of a message.
        noise_limit = 4 * T * step_sum / math.sqrt(8 / 105 * T**3)
        max_scale = constants.max_eta_scale_at_averages
        return constants.L * min(noise_limit, max_scale / constants.smoothness_at_unit_margin)
