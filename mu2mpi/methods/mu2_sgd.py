"""The paper's mu^2-SGD: corrected momentum at weighted averages of the iterates (Algorithms 1 and 2)."""

import math
from typing import Any, Literal

from pydantic import Field

from mu2mpi.core.registry import lookup, register
from mu2mpi.federation.batching import Batching
from mu2mpi.federation.estimators import AVERAGED_ITERATE, CORRECTED_MOMENTUM
from mu2mpi.federation.problem import Problem
from mu2mpi.methods.method import Method, PresetOptions
from mu2mpi.methods.presets.practical import PresetConstants
from mu2mpi.privacy.mechanisms.mechanism import Mechanism

# Both algorithms are in plain NumPy in docs/background/how-it-works.md. The package computes the same from
# increments, whose sum over the rounds is alpha_t d_{t,i} (Lemma 4.1).

# Names of methods by estimator and query point that differ from those of mu^2-SGD.
METHOD_VARIANTS = {
    ("corrected-momentum", "iterate"): "storm",
    ("gradient", "average"): "anytime-sgd",
    ("gradient", "iterate"): "parallel-sgd",
}


class Mu2Options(PresetOptions):
    """Options of mu^2-SGD: estimator and query point for ablations, and the preset."""

    estimator: Literal["corrected-momentum", "gradient"] = Field(
        "corrected-momentum",
        description="gradient estimator: corrected momentum, or the gradient of a fresh sample",
    )
    query: Literal["average", "iterate"] = Field(
        "average",
        description="query point of gradients: the weighted average of the iterates, or the last one",
    )


@register
class Mu2Sgd(Method):
    """mu^2-SGD: Algorithm 1 (untrusted server) and Algorithm 2 (trusted server)."""

    name, title = "mu2-sgd", "μ²-SGD"
    summary = "the paper's mu^2-SGD; --estimator and --query each switch one part off"
    options = Mu2Options
    is_default = supports_partial_participation = preset_supports_partial_participation = True
    estimator, query_point = CORRECTED_MOMENTUM, AVERAGED_ITERATE

    def select_variant(self, options: Any) -> Method:
        name = METHOD_VARIANTS.get((options.estimator, options.query))
        return self if name is None else lookup("methods", name)

    def practical_eta_scale(self, constants: PresetConstants) -> float:
        """Return the preset's eta_scale, at which the noise std of w_T reaches `model_noise_std`."""
        noise_reduction = constants.public_facts.noise_reduction or constants.noise_reduction
        noise_limit = 4 * constants.L * constants.model_noise_std * constants.experiment.rho * noise_reduction
        noise_limit /= constants.sensitivity
        stable_scale = constants.max_eta_scale_at_averages * constants.L / constants.smoothness_at_unit_margin
        return float(min(noise_limit, stable_scale))

    def theory_eta(self, problem: Problem, batching: Batching, mechanism: Mechanism) -> float:
        """Return the learning rate min(rho D N / (2 C T sqrt(d)), 1 / (4 L T)) of Theorems 5.2 and 6.2."""
        max_eta = problem.mean_participation * self.max_eta(problem, batching)
        return min(self.noise_limited_eta(problem, batching, mechanism), max_eta)

    def excess_loss_bound(self, problem: Problem, batching: Batching, mechanism: Mechanism) -> float:
        """Return the excess loss bound of Theorems 5.2 and 6.2, or NaN if they do not apply.

        Their unknown G* and s are replaced by bounds G and S = G + 2LD; --l2 adds to G* and L, not to noise.
        """
        D, M, T, S = problem.diameter, problem.machines, batching.rounds, self.contribution_bound(problem)
        if mechanism.clip_norm < S or not self.is_proven_for(problem, mechanism):
            return math.nan
        noise_divisor = problem.budget.rho * T * problem.noise_reduction
        noise = mechanism.sensitivity * math.sqrt(problem.d) / noise_divisor
        bias = S + problem.l2 * (D / 2 + 2 * D)
        return 4 * D * (bias / T + noise + S / math.sqrt(T * M))
