"""Noisy minibatch SGD: each machine draws K of its samples with replacement in each round."""

import math
from typing import Any

from mu2mpi.core.registry import register
from mu2mpi.federation.batching import Batching, ReplacementBatches
from mu2mpi.federation.estimators import GRADIENT_ESTIMATOR, LAST_ITERATE
from mu2mpi.federation.problem import Problem
from mu2mpi.methods.method import Method, PresetOptions, batch_field, check_batch, tail_field
from mu2mpi.methods.presets.practical import PresetConstants
from mu2mpi.privacy.mechanisms.mechanism import Mechanism


class MinibatchOptions(PresetOptions):
    """Options of noisy minibatch SGD: batch size, and averaging of the iterates."""

    batch: int | None = batch_field(
        "batch size K of each machine, drawn with replacement [default: that of the theorem]"
    )
    tail: float | None = tail_field("all rounds")


@register
class NoisyMinibatchSgd(Method):
    """Noisy minibatch SGD: Lowy, Razaviyayn, "Private federated learning without a trusted server", 2023."""

    name, title = "noisy-minibatch-sgd", "noisy minibatch SGD"
    summary = "gradients of minibatches drawn with replacement"
    options, estimator, query_point = MinibatchOptions, GRADIENT_ESTIMATOR, LAST_ITERATE
    mechanism = "replacement-exact"
    supports_partial_participation = outputs_mean_query_point = True
    preset_settings = dict.fromkeys(("clip_norm", "diameter", "rounds", "tail", "eta_scale", "batch"))

    def choose_settings(self, constants: PresetConstants) -> dict[str, Any]:
        """Return the practical preset's settings, with batches of at most a tenth of a machine's samples."""
        n, experiment = constants.public_facts.samples // constants.machines, constants.experiment
        settings = constants.multi_pass_settings(n * constants.noise_reduction, (100, 4000), tail=0.5)
        batch_share = experiment.rho / (2 * math.sqrt(experiment.rounds or settings["rounds"]))
        return {**settings, "batch": math.ceil(n * min(batch_share, 0.1))}

    def batching(self, problem: Problem, rounds: int | None) -> Batching:
        """Return batches with replacement, by default of the rounds and batch size of Theorem D.2."""
        rounds = rounds or default_rounds(problem, self.clip_norm(problem))
        unequal = problem.unequal_machines
        participations = unequal.run_participation(rounds).max_count if unequal else rounds
        batch = problem.method_options.batch or default_batch_size(problem, participations)
        check_batch(batch, problem.samples, "a machine")
        return ReplacementBatches(problem.samples, rounds, batch)

    def resolve_options(self, problem: Problem, batching: Batching) -> dict[str, Any]:
        return {"batch": batching.max_batch_size}

    def audit_settings(self, machines: int, rounds: int, options: Any) -> tuple[int, dict[str, Any]]:
        """Return the audit's samples per machine, one per round, so that subsampling has an effect."""
        return rounds, {}

    def gradient_error(self, problem: Problem, batching: Batching, mechanism: Mechanism) -> float:
        """Return the RMS error sqrt(V) of an average gradient, including the effect of reused samples."""
        passes = batching.rounds / (problem.samples * problem.machines)
        reuse_error = 2 * mechanism.clip_norm * math.sqrt(passes)
        return math.hypot(super().gradient_error(problem, batching, mechanism), reuse_error)


def default_rounds(problem: Problem, G: float) -> int:
    """Return the number of rounds of Theorem D.2 of Lowy and Razaviyayn, 2023."""
    n, M, d, epsilon = problem.samples, problem.machines, problem.d, problem.budget.epsilon
    smooth_term = problem.smoothness * problem.diameter * math.sqrt(M) / G
    smooth_term *= min(math.sqrt(n), epsilon * n / math.sqrt(d))
    # Unlike a power, a product overflows to infinity, which the minimum then ignores.
    return max(1, math.ceil(smooth_term + min(n * M, epsilon * epsilon * n**2 * M / d)))


def default_batch_size(problem: Problem, participations: int) -> int:
    """Return the batch size K of Theorem D.2 of the same paper, between 1 and n; 1 without noise."""
    n, epsilon, delta = problem.samples, problem.budget.epsilon, problem.budget.delta
    if math.isinf(problem.budget.rho):
        return 1
    return max(1, math.ceil(min(n, epsilon * n / (4 * math.sqrt(2 * participations * math.log(2 / delta))))))
