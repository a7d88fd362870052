"""Accelerated SRGD: corrected momentum of large batches and optimistic steps, in few rounds."""

import math
from typing import Any

from mu2mpi.core.arrays import IntArray
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import register
from mu2mpi.federation.batching import Batching, DisjointBatches
from mu2mpi.federation.estimators import AVERAGED_ITERATE, CORRECTED_MOMENTUM
from mu2mpi.federation.problem import Problem
from mu2mpi.methods.method import Iterates, Method, PresetOptions, batch_field
from mu2mpi.methods.presets.practical import PresetConstants
from mu2mpi.privacy.mechanisms.mechanism import Mechanism


class AcceleratedOptions(PresetOptions):
    """Options of accelerated SRGD: batch size, and the preset."""

    batch: int | None = batch_field("batch size K of each machine, each sample used once [default: n / T]")


@register
class AcceleratedSrgd(Method):
    """Accelerated SRGD: optimistic online-to-batch conversion with private sums of increments over batches.

    Zhang, Tran and Cutkosky, 2022, with an optimistic learner, and rounds and batches of Choquette-Choo,
    Ganesh and Thakurta, 2025 (docs/background/methods.md).
    """

    name, title = "accelerated-srgd", "accelerated SRGD"
    summary = "corrected momentum of large batches, in few rounds of accelerated steps"
    options, estimator, query_point = AcceleratedOptions, CORRECTED_MOMENTUM, AVERAGED_ITERATE
    preset_settings = dict.fromkeys(("clip_norm", "diameter", "rounds", "eta_scale"))

    def choose_settings(self, constants: PresetConstants) -> dict[str, Any]:
        """Return the practical preset's settings: the fewest rounds with step sizes of at most 1 / (2 L)."""
        n, experiment = constants.public_facts.samples // constants.machines, constants.experiment
        max_step = 0.5 / constants.smoothness_at_unit_margin
        path = constants.model_noise_std * experiment.rho * constants.noise_reduction / constants.sensitivity
        min_rounds = math.ceil(min(n, math.sqrt(path * n / max_step)))
        K = experiment.batch or n // (experiment.rounds or min_rounds) or 1
        T = experiment.rounds or max(1, n // K)
        return constants.settings(min(path * K / T, max_step) * 8 * constants.L, rounds=T)

    def batching(self, problem: Problem, rounds: int | None) -> Batching:
        """Return disjoint batches of equal size, by default in max(sqrt(n), (n M)^(1/4)) rounds."""
        n = problem.samples
        min_rounds = math.ceil(max(math.sqrt(n), (n * problem.machines) ** 0.25))
        batch = problem.method_options.batch or max(1, n // (rounds or min_rounds))
        rounds = rounds or max(1, n // batch)
        if rounds > (max_rounds := 2**22):  # a list of more batches would take gigabytes
            raise InputError(f"--rounds must be at most {max_rounds} (number of batches), got {rounds}.")
        return DisjointBatches.from_batch_ends(tuple(range(batch, rounds * batch + 1, batch)))

    def audit_settings(self, machines: int, rounds: int, options: Any) -> tuple[int, dict[str, Any]]:
        """Return the audit's samples per machine: two per batch, one of which is unknown to the adversary."""
        return rounds * (options.batch or 2), {}

    def resolve_options(self, problem: Problem, batching: Batching) -> dict[str, Any]:
        return {"batch": batching.max_batch_size}

    def max_eta(self, problem: Problem, batching: Batching) -> float:
        return 1 / (8 * problem.smoothness)

    def theory_eta(self, problem: Problem, batching: Batching, mechanism: Mechanism) -> float:
        """Return the learning rate min(1 / (8 L), D / sqrt(8 V)) with V of `hint_error`."""
        V = self.hint_error(problem, batching, mechanism)
        return min(self.max_eta(problem, batching), problem.diameter / math.sqrt(8 * V))

    def hint_error(self, problem: Problem, batching: Batching, mechanism: Mechanism) -> float:
        """Return V, a bound on the sum of squared errors of hints, which predict the next round's message."""
        T, K, C = batching.rounds, batching.max_batch_size, mechanism.clip_norm
        sampling_error = C**2 / (K * problem.machines)
        noise_std = mechanism.sensitivity / (problem.budget.rho * problem.noise_reduction * K)
        noise_error = problem.d * T * noise_std * noise_std  # A power would raise instead of overflowing.
        hint_errors = sampling_error * (T + math.log(T) + 1) + noise_error * (2 * T + 2 * math.log(T) + 3)
        return problem.G**2 / 2 + hint_errors

    def excess_loss_bound(self, problem: Problem, batching: Batching, mechanism: Mechanism) -> float:
        """Return the excess loss bound (docs/background/methods.md), or NaN if gradients may be clipped."""
        D, T, S = problem.diameter, batching.rounds, self.contribution_bound(problem)
        if mechanism.clip_norm < S or mechanism.name != self.mechanism:
            return math.nan
        eta, batch = self.theory_eta(problem, batching, mechanism), batching.max_batch_size * problem.machines
        regret = D**2 / (8 * eta) + eta * self.hint_error(problem, batching, mechanism)
        estimation = 2 / 3 * D * S * math.sqrt((T + 1) ** 3 / batch)
        return 2 / (T * (T + 1)) * (regret + estimation)

    def step(self, iterates: Iterates, t: int, message_sum: IntArray, step_factor: float) -> None:
        """Take an optimistic step: average proj(w_{t+1} - (t + 1) / t eta message) instead of w_{t+1}."""
        # Rakhlin and Sridharan, 2013; Joulani, Raj, György and Szepesvári, 2020.
        super().step(iterates, t, message_sum, step_factor)
        # Restore x_t, which is averaged with v instead.
        iterates.x, iterates.x_previous = iterates.x_previous, iterates.x
        v, hint_factor = iterates.w.copy(), (t + 1) / t
        iterates.apply_regulariser(t, v, hint_factor)
        iterates.projected_step(t, message_sum, hint_factor * step_factor, v)
