"""STORM: corrected momentum at the iterates."""

import math
from typing import Any

from mu2mpi.core.registry import lookup, register
from mu2mpi.data.source import PublicFacts
from mu2mpi.federation.batching import Batching
from mu2mpi.federation.estimators import CORRECTED_MOMENTUM, LAST_ITERATE
from mu2mpi.federation.task import Task
from mu2mpi.methods.method import Method, PresetOptions
from mu2mpi.methods.presets.practical import STEP, PresetConstants, single_pass_rounds
from mu2mpi.privacy.mechanisms.mechanism import Mechanism


@register
class Storm(Method):
    """STORM: Cutkosky and Orabona, "Momentum-based variance reduction in non-convex SGD", 2019."""

    name, title, summary = "storm", "STORM", "corrected momentum at iterates"
    options = PresetOptions
    estimator, query = CORRECTED_MOMENTUM, LAST_ITERATE
    supports_partial_participation = True

    def check(self, experiment: Any, options: Any) -> None:
        """Raise ValueError without a clipping norm: increments at iterates have no bound."""
        if experiment.clip_norm is None and options.preset is None:
            raise ValueError(
                "Increments of --estimator corrected-momentum with --query iterate are unbounded. "
                "Give --clip-norm or --preset practical, or use --query average."
            )

    def practical_diameter_factor(self, experiment: Any) -> float:
        """Return 1/8, or less: projections on a small ball damp the noise of early steps."""
        defaults = lookup("losses", experiment.loss).practical_defaults
        return float(min(1 / 8, 8.0 * defaults.noise_std / defaults.max_margin))

    def practical_eta_scale(self, experiment: Any, facts: PublicFacts, constants: PresetConstants) -> float:
        """Return the scale at which weights accumulate 1/20 of their noise limit from round T / 2 on."""
        T = single_pass_rounds(experiment, facts)
        noise_limit = 0.05 * math.sqrt(T / 1.5) * constants.noise_limited_step_sum(experiment)
        return 9 * constants.L * min(noise_limit, STEP * math.sqrt(T) / constants.unit_margin_smoothness)

    def max_eta(self, task: Task, batching: Batching) -> float:
        """Return 1 / (9 L)."""
        return 1 / (9 * task.smoothness)

    def theory_eta(self, task: Task, batching: Batching, mechanism: Mechanism) -> float:
        """Return min(rho D N / (2 C sqrt(d T)), 1 / (9 L)); see docs/background/methods.md."""
        C, D = mechanism.clip_norm, task.diameter
        eta = (
            task.budget.rho
            * D
            * task.noise_reduction
            / (2 * C * math.sqrt(task.d) * math.sqrt(batching.rounds))
        )
        if task.per_machine is not None:
            eta = self.noise_limited_eta(task, batching, mechanism) * math.sqrt(batching.rounds)
        return min(eta, self.max_eta(task, batching))

    def step_size(self, eta: float, rounds: int, t: int) -> float:
        """Return eta / (t sqrt(t + 1)): decreasing steps, as messages carry the weight t."""
        return eta / (t * math.sqrt(t + 1))
