"""DP-GD: full-batch gradient descent, or passes over the samples in fixed batches."""

import math
from typing import Any

from pydantic import Field

from mu2mpi.core.arrays import IntArray
from mu2mpi.core.registry import register
from mu2mpi.federation.batching import Batching, CyclicBatches
from mu2mpi.federation.estimators import GRADIENT_ESTIMATOR, LAST_ITERATE
from mu2mpi.federation.problem import Problem
from mu2mpi.methods.method import Iterates, Method, PresetOptions, batch_field, check_batch, tail_field
from mu2mpi.methods.presets.practical import PresetConstants
from mu2mpi.privacy.mechanisms.mechanism import Mechanism
from mu2mpi.privacy.released_sums import UNIT_SENSITIVITIES


class DpGdOptions(PresetOptions):
    """Options of DP-GD: batch size, averaging of the iterates, and momentum."""

    batch: int | None = batch_field(
        "batch size of each machine, in passes over its samples [default: all of its samples]"
    )
    tail: float | None = tail_field("all but the first round")
    momentum: float | None = Field(None, ge=0, lt=1, description="heavy-ball momentum [default: none]")


@register
class DpGd(Method):
    """DP-GD with constant steps: Bassily et al., "Private empirical risk minimization", 2014."""

    name, title = "dp-gd", "DP-GD"
    summary = "gradients of all samples in each round, or of batches in passes"
    options = DpGdOptions
    supports_partial_participation = suits_large_noise = True
    estimator, query_point = GRADIENT_ESTIMATOR, LAST_ITERATE
    preset_settings = dict.fromkeys(("clip_norm", "diameter", "rounds", "tail", "eta_scale", "momentum"))

    def audit_settings(self, machines: int, rounds: int, options: Any) -> tuple[int, dict[str, Any]]:
        """Return the audit's samples per machine: 2, or 1.5 batches, so that samples are reused early."""
        return (math.ceil(1.5 * options.batch) if options.batch else 2), {}

    def choose_settings(self, constants: PresetConstants) -> dict[str, Any]:
        """Return the practical preset's settings: momentum 0.9, which needs a tenth of the rounds."""
        momentum = 0.9 if constants.experiment.momentum is None else constants.experiment.momentum
        return {**self.settings_with_gain(constants, 1 / (1 - momentum)), "momentum": momentum}

    def settings_with_gain(self, constants: PresetConstants, gain: float) -> dict[str, Any]:
        """Return the practical preset's settings for rounds that move as far as `gain` gradient steps."""
        n = constants.public_facts.samples / constants.machines
        K = min(n, constants.experiment.batch or n)
        noise_divisor, rounds_range = math.sqrt(n * K) * constants.noise_reduction, (20, round(400 * n / K))
        return constants.multi_pass_settings(noise_divisor, rounds_range, 0.25, gain)

    def first_averaged_round(self, rounds: int, options: Any) -> int | None:
        """Return the first round that the output averages: that of the tail, or 2 without a tail."""
        return super().first_averaged_round(rounds, options) or 2

    def batching(self, problem: Problem, rounds: int | None) -> Batching:
        """Return cyclic batches, by default of enough passes that noise exceeds the optimisation error."""
        n, C = problem.samples, self.clip_norm(problem)
        K = problem.method_options.batch or n
        check_batch(K, n, "a machine")
        if rounds is None:
            noise_divisor = problem.budget.rho * problem.noise_reduction * math.sqrt(n * K)
            noise_error = UNIT_SENSITIVITIES[problem.neighbours] * math.sqrt(problem.d) / noise_divisor
            error = C * math.hypot(noise_error, math.sqrt(2 / (n * problem.machines)))
            # After R steps, L D^2 / (8 R) is at most D error / 2; it is negligible after 10,000 passes.
            steps = math.ceil(min(problem.smoothness * problem.diameter / (4 * error), 10_000))
            rounds = math.ceil((steps + 1) * K / n) * n // K
        return CyclicBatches(min(n, K * rounds), rounds, K)

    def gradient_error(self, problem: Problem, batching: Batching, mechanism: Mechanism) -> float:
        """Return the RMS error sqrt(V) of an average gradient, including the effect of reused samples."""
        T, n, K = batching.rounds, problem.samples, batching.batch_size(1)
        sigma, noise_reduction = problem.noise_std_and_reduction(mechanism)
        noise_error = math.sqrt(problem.d) * sigma / (noise_reduction * K)
        sampling_error = math.sqrt((1 / K - 1 / n + 2 * T / n) / problem.effective_machines)
        return math.hypot(noise_error, self.clip_norm(problem) * sampling_error)

    def theory_eta(self, problem: Problem, batching: Batching, mechanism: Mechanism) -> float:
        """Return the learning rate (1 - momentum) / (L + 2 sqrt(V T) / D) with V of `gradient_error`."""
        error = self.gradient_error(problem, batching, mechanism)
        b = 2 * error * math.sqrt(batching.rounds) / problem.diameter
        return (1 - (problem.method_options.momentum or 0)) / (problem.smoothness + b)

    def excess_loss_bound(self, problem: Problem, batching: Batching, mechanism: Mechanism) -> float:
        """Return the excess loss bound D^2 / (8 eta R) + V / (2 (1 / eta - L)), R = T - 1, or NaN."""
        R, options = batching.rounds - 1, problem.method_options
        is_plain = batching.is_full_batch and options.tail is None and not options.momentum and R > 0
        if not (is_plain and self.is_proven_for(problem, mechanism) and mechanism.clip_norm >= problem.G):
            return math.nan
        # As 1 / eta - L = b of `theory_eta`, the second term is the following, which avoids 0 / 0.
        error = self.gradient_error(problem, batching, mechanism)
        error_term = problem.diameter * error / (4 * math.sqrt(batching.rounds))
        return problem.diameter**2 / (8 * self.theory_eta(problem, batching, mechanism) * R) + error_term

    def state_names(self, options: Any) -> tuple[str, ...]:
        return ("w_previous",) if options.momentum else ()

    def iterates_reveal_messages(self, options: Any) -> bool:
        return not options.momentum

    def step(self, iterates: Iterates, t: int, message_sum: IntArray, step_factor: float) -> None:
        """Take a projected gradient step, with heavy-ball momentum (Polyak, 1964) if the option is given."""
        if momentum := iterates.constants.problem.method_options.momentum:
            w, w_previous = iterates.w, iterates.optimizer_state["w_previous"]
            w_current = w.copy()
            w += momentum * (w_current - w_previous)
            w_previous[...] = w_current
        super().step(iterates, t, message_sum, step_factor)
