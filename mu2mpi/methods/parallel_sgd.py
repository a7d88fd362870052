"""Noisy parallel SGD: gradients at the iterates, and the mean of the iterates as output."""

import math
from typing import Any

from mu2mpi.core.registry import register
from mu2mpi.data.source import PublicFacts
from mu2mpi.federation.estimators import GRADIENT, LAST_ITERATE
from mu2mpi.methods.method import Method, PresetOptions
from mu2mpi.methods.presets.practical import STEP, PresetConstants, single_pass_rounds


@register
class ParallelSgd(Method):
    """Noisy parallel SGD: Dekel et al., "Optimal distributed online prediction using mini-batches", 2012."""

    name, title, summary = "parallel-sgd", "noisy parallel SGD", "gradients at iterates"
    options = PresetOptions
    estimator, query_point = GRADIENT, LAST_ITERATE
    supports_partial_participation = outputs_mean = True

    def practical_eta_scale(
        self, experiment: Any, public_facts: PublicFacts, constants: PresetConstants
    ) -> float:
        """Return the preset's eta_scale, at which the mean iterate's noise std reaches `weight_noise_std`."""
        accumulation = math.sqrt(
            single_pass_rounds(experiment, public_facts) / 3
        )  # noise std in units of eta sigma
        eta = constants.noise_limited_step_sum(experiment) / accumulation
        return constants.L * min(eta, STEP / constants.unit_margin_smoothness)
