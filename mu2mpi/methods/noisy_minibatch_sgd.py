"""Noisy minibatch SGD: each machine draws K of its samples with replacement in each round."""

import math
from typing import Any

from mu2mpi.core.registry import register
from mu2mpi.data.source import PublicFacts
from mu2mpi.federation.batching import Sampling, WithReplacement
from mu2mpi.federation.estimators import GRADIENT, ITERATE
from mu2mpi.federation.task import Task
from mu2mpi.federation.trust_mode import shared_by
from mu2mpi.methods.method import Method, PresetOptions, batch_field, check_batch, tail_field
from mu2mpi.methods.presets.practical import PracticalPreset
from mu2mpi.privacy.mechanisms.mechanism import Mechanism
from mu2mpi.privacy.mechanisms.replacement_mechanism import check_epsilon, fewest_drawn


class MinibatchOptions(PresetOptions):
    """How many samples are drawn, and what is put out."""

    batch: int | None = batch_field(
        "samples K that each machine draws in a round [default: that of its theorem]"
    )
    tail: float | None = tail_field("the mean of all")


@register
class NoisyMinibatchSgd(Method):
    """Lowy and Razaviyayn, "Private federated learning without a trusted server", 2023."""

    name, title = "noisy-minibatch-sgd", "noisy minibatch SGD"
    summary = "gradients of minibatches that are drawn with replacement"
    options = MinibatchOptions
    estimator, query = GRADIENT, ITERATE
    mechanism = "replacement"
    takes_absence = takes_mean = True
    chooses = dict.fromkeys(("clip_norm", "diameter", "rounds", "tail", "eta_scale", "batch"))
    chooses |= {"mechanism": "replacement-exact"}

    def practical(self, preset: PracticalPreset, asked: Any, facts: PublicFacts) -> dict[str, Any]:
        """Return the settings of the practical mode; batches are at most a tenth of a machine's samples."""
        n = facts.samples // (asked.machines or 1)
        chosen = preset.descent(asked, facts, hidden=n * shared_by(asked), rounds=(100, 4000), tail=0.5)
        share = asked.rho / (2 * math.sqrt(asked.rounds or chosen["rounds"]))
        return {**chosen, "batch": math.ceil(n * min(share, 0.1))}

    def sampling(self, task: Task, rounds: int | None) -> Sampling:
        """Return the rounds of Theorem D.2, and the fewest samples for which its noise suffices."""
        budget, wanted = task.budget, 1
        is_noisy = math.isfinite(budget.rho)
        if is_noisy and task.mechanism == self.mechanism:
            check_epsilon(budget.epsilon, budget.delta)
        rounds = rounds or theorem_rounds(task, self.clip_norm(task))
        if is_noisy:
            attended = rounds if task.unequal is None else task.unequal.in_rounds(rounds).max_count
            wanted = fewest_drawn(task.samples, attended, budget.epsilon, budget.delta)
        batch = task.options.batch or wanted
        check_batch(batch, max(task.samples, wanted), "a machine")
        return WithReplacement(task.samples, rounds, batch)

    def completed(self, task: Task, sampling: Sampling) -> dict[str, Any]:
        """Return the size of the batches."""
        return {"batch": sampling.most}

    def worst_case(self, machines: int, rounds: int, options: Any) -> tuple[int, dict[str, Any]]:
        """Return as many samples as rounds: of one, every message would tell."""
        return rounds, {}

    def error(self, task: Task, sampling: Sampling, mechanism: Mechanism) -> float:
        """Return the error of a gradient, with what it costs others to use the same samples again."""
        again = 2 * mechanism.clip_norm * math.sqrt(sampling.rounds / (task.samples * task.machines))
        return math.hypot(super().error(task, sampling, mechanism), again)


def theorem_rounds(task: Task, G: float) -> int:
    """Return the rounds R of Lowy and Razaviyayn, 2023, Theorem D.2, e being the epsilon of the budget.

    (L D sqrt(M) / G) min(sqrt(n), e n / sqrt(d)) + min(n M, e^2 n^2 M / d), rounded up.
    """
    n, M, d, epsilon = task.samples, task.machines, task.d, task.budget.epsilon
    smooth = task.smoothness * task.diameter * math.sqrt(M) / G
    smooth *= min(math.sqrt(n), epsilon * n / math.sqrt(d))
    # A square that is written as a product may be infinite, and is then not the smaller.
    return max(1, math.ceil(smooth + min(n * M, epsilon * epsilon * n**2 * M / d)))
