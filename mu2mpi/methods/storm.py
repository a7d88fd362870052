"""STORM: corrected momentum at the iterates."""

import math
from typing import Any

from mu2mpi.core.registry import lookup, register
from mu2mpi.federation.batching import Batching
from mu2mpi.federation.estimators import CORRECTED_MOMENTUM, LAST_ITERATE
from mu2mpi.federation.problem import Problem
from mu2mpi.methods.method import Method, PresetOptions
from mu2mpi.methods.presets.practical import STEP_SIZE_TIMES_L, PresetConstants
from mu2mpi.privacy.mechanisms.mechanism import Mechanism


@register
class Storm(Method):
    """STORM: Cutkosky and Orabona, "Momentum-based variance reduction in non-convex SGD", 2019."""

    name, title, summary = "storm", "STORM", "corrected momentum at iterates"
    options, estimator, query_point = PresetOptions, CORRECTED_MOMENTUM, LAST_ITERATE
    supports_partial_participation = True

    def check_experiment(self, experiment: Any, options: Any) -> None:
        """Raise ValueError without a clipping norm, as increments of gradients at iterates are unbounded."""
        if experiment.clip_norm is None and options.preset is None:
            raise ValueError(
                "Increments of --estimator corrected-momentum with --query iterate are unbounded. "
                "Give --clip-norm or --preset practical, or use --query average."
            )

    def practical_diameter_factor(self, experiment: Any) -> float:
        """Return the factor of the preset's diameter, 1/8 or less: a small ball damps noise."""
        defaults = lookup("losses", experiment.loss).practical_defaults
        return float(min(1 / 8, 8.0 * defaults.margin_noise_std / defaults.max_margin))

    def practical_eta_scale(self, constants: PresetConstants) -> float:
        """Return the preset's eta_scale: x gains 1/20 of `model_noise_std` from round T / 2 on."""
        T, step_sum = constants.single_pass_rounds, constants.noise_limited_step_sum()
        noise_limit = 0.05 * math.sqrt(T / 1.5) * step_sum
        max_step = STEP_SIZE_TIMES_L * math.sqrt(T) / constants.smoothness_at_unit_margin
        return 9 * constants.L * min(noise_limit, max_step)

    def max_eta(self, problem: Problem, batching: Batching) -> float:
        return 1 / (9 * problem.smoothness)

    def theory_eta(self, problem: Problem, batching: Batching, mechanism: Mechanism) -> float:
        """Return the learning rate min(rho D N / (2 C sqrt(d T)), 1 / (9 L)) (docs/background/methods.md)."""
        sensitivity, D, root_T = mechanism.sensitivity, problem.diameter, math.sqrt(batching.rounds)
        eta = problem.budget.rho * D * problem.noise_reduction / (sensitivity * math.sqrt(problem.d) * root_T)
        if problem.per_machine_plan is not None:
            eta = self.noise_limited_eta(problem, batching, mechanism) * root_T
        return min(eta, self.max_eta(problem, batching))

    def step_size(self, eta: float, rounds: int, t: int) -> float:
        """Return the step size eta / (t sqrt(t + 1)) of round t, whose message carries the weight t."""
        return eta / (t * math.sqrt(t + 1))
