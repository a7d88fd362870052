"""Noisy parallel SGD: gradients at the iterates, and the mean of the iterates as output."""

import math

from mu2mpi.core.registry import register
from mu2mpi.federation.estimators import GRADIENT_ESTIMATOR, LAST_ITERATE
from mu2mpi.methods.method import Method, PresetOptions
from mu2mpi.methods.presets.practical import STEP_SIZE_TIMES_L, PresetConstants


@register
class ParallelSgd(Method):
    """Noisy parallel SGD: Dekel et al., "Optimal distributed online prediction using mini-batches", 2012."""

    name, title, summary = "parallel-sgd", "noisy parallel SGD", "gradients at iterates"
    options, estimator, query_point = PresetOptions, GRADIENT_ESTIMATOR, LAST_ITERATE
    supports_partial_participation = outputs_mean_query_point = True

    def practical_eta_scale(self, constants: PresetConstants) -> float:
        """Return the preset's eta_scale, at which the mean iterate's noise std reaches `model_noise_std`."""
        accumulation = math.sqrt(constants.single_pass_rounds / 3)  # noise std in units of eta sigma
        eta = constants.noise_limited_step_sum() / accumulation
        return constants.L * min(eta, STEP_SIZE_TIMES_L / constants.smoothness_at_unit_margin)
