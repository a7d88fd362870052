"""DP-Newton: regularised Newton steps with noised second moments, averaged over rounds, and gradients."""

import math
from typing import Any

from mu2mpi.core.arrays import FloatArray
from mu2mpi.core.registry import lookup, register
from mu2mpi.federation.batching import Batching, CyclicBatches
from mu2mpi.federation.problem import Problem
from mu2mpi.methods.ada_ssp import AdaSsp
from mu2mpi.methods.method import Iterates, PresetOptions, tail_field
from mu2mpi.methods.presets.practical import PresetConstants, round_to_four_digits

DEFAULT_ROUNDS = 10


class DpNewtonOptions(PresetOptions):
    """Option of DP-Newton: averaging of the iterates."""

    tail: float | None = tail_field("the last round")


@register
class DpNewton(AdaSsp):
    """Newton's method with the curvature at model 0, and noise in second moments and in gradients.

    Ganesh et al., "Faster differentially private convex optimization via second-order methods", 2023, with
    one release a round instead of two, and another regulariser (docs/background/methods.md).
    """

    name, title = "dp-newton", "DP-Newton"
    summary = "second moments and gradients of all samples in each round"
    options, suits_large_noise = DpNewtonOptions, True
    preset_settings = dict.fromkeys(("clip_norm", "diameter", "rounds", "tail", "eta_scale"))

    def choose_settings(self, constants: PresetConstants) -> dict[str, Any]:
        """Return the practical preset's settings, with noise of up to 4 `model_noise_std` over all rows."""
        settings, facts = super().choose_settings(constants), constants.public_facts
        experiment, loss = constants.experiment, lookup("losses", constants.experiment.loss)
        rows, C = loss.model_rows(facts.classes), experiment.clip_norm or settings["clip_norm"]
        unit_sensitivity = lookup("mechanisms", experiment.chosen_mechanism).unit_sensitivities[
            experiment.neighbours
        ]
        sensitivity = unit_sensitivity * math.sqrt(math.sqrt(2) * C) * loss.zero_residual_bound(rows)
        noise_divisor = experiment.rho * constants.noise_reduction * facts.samples / constants.machines
        step_sum = 4 * constants.model_noise_std * noise_divisor / (sensitivity * math.sqrt(rows))
        eta_scale = min(1e6, constants.L * step_sum / (experiment.rounds or DEFAULT_ROUNDS))
        settings |= {"rounds": DEFAULT_ROUNDS, "tail": 0.25}
        return settings | {"eta_scale": round_to_four_digits(eta_scale)}

    def batching(self, problem: Problem, rounds: int | None) -> Batching:
        """Return batches of all samples."""
        return CyclicBatches(problem.samples, rounds or DEFAULT_ROUNDS, problem.samples)

    def state_names(self, options: Any) -> tuple[str, ...]:
        return ("mean_sums",)

    def newton_step(self, iterates: Iterates, t: int, sums: FloatArray) -> None:
        """Take a regularised Newton step with the mean of the second moments of all rounds."""
        F, mean_sums = sums.shape[1], iterates.optimizer_state["mean_sums"]
        mean_sums += (sums - mean_sums) / t
        sums[:F] = mean_sums[:F]
        super().newton_step(iterates, t, sums)
