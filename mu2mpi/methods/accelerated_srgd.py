"""Accelerated SRGD: corrected momentum of large batches, and steps that look ahead, in few rounds."""

import math
from typing import TYPE_CHECKING, Any

from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import register
from mu2mpi.data.source import PublicFacts
from mu2mpi.federation.batching import Batches, Sampling
from mu2mpi.federation.estimators import AVERAGE, CORRECTED_MOMENTUM
from mu2mpi.federation.task import Task
from mu2mpi.federation.trust_mode import shared_by
from mu2mpi.methods.method import Method, PresetOptions, batch_field
from mu2mpi.methods.presets.practical import PracticalPreset, rounded
from mu2mpi.privacy.mechanisms.mechanism import Mechanism

if TYPE_CHECKING:
    from mu2mpi.federation.iterates import Integers, Iterates


class AcceleratedOptions(PresetOptions):
    """How many samples share a round, and how noise is correlated."""

    batch: int | None = batch_field("samples K that each machine uses in a round, each once [default: n / T]")


@register
class AcceleratedSrgd(Method):
    """Optimistic online-to-batch conversion, with private sums of increments over batches.

    Zhang, Tran and Cutkosky, "Differentially private online-to-batch for smooth losses", 2022, with an
    optimistic learner; rounds and batches of Choquette-Choo, Ganesh and Thakurta, "Near-optimal rates for
    O(1)-smooth DP-SCO with a single epoch and large batches", 2025. See docs/background/methods.md.
    """

    name, title = "accelerated-srgd", "accelerated SRGD"
    summary = "corrected momentum of large batches, in few rounds of accelerated steps"
    options = AcceleratedOptions
    estimator, query = CORRECTED_MOMENTUM, AVERAGE
    chooses = dict.fromkeys(("clip_norm", "diameter", "rounds", "eta_scale"))

    def practical(self, preset: PracticalPreset, asked: Any, facts: PublicFacts) -> dict[str, Any]:
        """Return the settings of the practical mode: as few steps as are at most 1 / (2 L) long."""
        M, chosen = asked.machines or 1, preset.choices(asked, facts)
        n, longest = facts.samples // M, 0.5 / chosen.nearby
        path = chosen.noise * asked.rho * shared_by(asked) / (2 * chosen.clip)
        fewest = math.ceil(min(n, math.sqrt(path * n / longest)))
        K = asked.batch or n // (asked.rounds or fewest) or 1
        T = asked.rounds or max(1, n // K)
        return {
            "clip_norm": chosen.clip_norm,
            "diameter": chosen.diameter,
            "rounds": T,
            "eta_scale": rounded(min(path * K / T, longest) * 8 * chosen.L),
        }

    def sampling(self, task: Task, rounds: int | None) -> Sampling:
        """Return about sqrt(n) rounds with as large batches, or (n M)^(1/4) if M passes n: of all samples."""
        n = task.samples
        fewest = math.ceil(max(math.sqrt(n), (n * task.machines) ** 0.25))
        batch = task.options.batch or max(1, n // (rounds or fewest))
        rounds = rounds or max(1, n // batch)
        if rounds > (most := 2**22):  # to list the batches of more would take gigabytes
            raise InputError(f"rounds = {rounds} are too many batches; give at most --rounds {most}")
        return Batches.until(tuple(range(batch, rounds * batch + 1, batch)))

    def worst_case(self, machines: int, rounds: int, options: Any) -> tuple[int, dict[str, Any]]:
        """Return a small batch a round, in which all samples but one are known."""
        return rounds * (options.batch or 2), {}

    def completed(self, task: Task, sampling: Sampling) -> dict[str, Any]:
        """Return the size of the batches."""
        return {"batch": sampling.most}

    def largest_rate(self, task: Task, sampling: Sampling) -> float:
        """Return 1 / (8 L): no smaller in more rounds."""
        return 1 / (8 * task.smoothness)

    def base_rate(self, task: Task, sampling: Sampling, mechanism: Mechanism) -> float:
        """Return min(1 / (8 L), D / sqrt(8 V)), the best rate in the bound of docs/background/methods.md."""
        V = self.surprise(task, sampling, mechanism)
        return min(self.largest_rate(task, sampling), task.diameter / math.sqrt(8 * V))

    def surprise(self, task: Task, sampling: Sampling, mechanism: Mechanism) -> float:
        """Return V: what noise and samples add to all ||q_t - h_t||^2 at most, and half of G^2 for the first.

        A batch has the error C^2 / (K M) and the noise d sigma^2 / (N K)^2, as messages and hints do.
        """
        T, K, C = sampling.rounds, sampling.most, mechanism.clip_norm
        of_samples = C**2 / (K * task.machines)
        noise = 2 * C / (task.budget.rho * task.shared * K)
        of_noise = task.d * T * noise * noise  # may be infinite, where a power would raise
        of_hints = of_samples * (T + math.log(T) + 1) + of_noise * (2 * T + 2 * math.log(T) + 3)
        return task.G**2 / 2 + of_hints

    def loss_bound(self, task: Task, sampling: Sampling, mechanism: Mechanism, is_own_rate: bool) -> float:
        """Return 2 / (T (T + 1)) (D^2 / (8 eta) + eta V + 2/3 D S (T + 1)^(3/2) / sqrt(K M)), if it holds."""
        D, T, S = task.diameter, sampling.rounds, self.increment_bound(task)
        if mechanism.clip_norm < S or mechanism.name != self.mechanism or not is_own_rate:
            return math.nan
        eta, batch = self.base_rate(task, sampling, mechanism), sampling.most * task.machines
        regret = D**2 / (8 * eta) + eta * self.surprise(task, sampling, mechanism)
        late = 2 / 3 * D * S * math.sqrt((T + 1) ** 3 / batch)
        return 2 / (T * (T + 1)) * (regret + late)

    def step(self, iterates: "Iterates", t: int, total: "Integers", scale: float) -> None:
        """Average v_{t+1} = proj(w_{t+1} - eta h) in place of w_{t+1}, with the hint h = (t + 1) / t q_t.

        Rakhlin and Sridharan, 2013; Joulani, Raj, György and Szepesvári, 2020.
        """
        if iterates.l2:
            iterates.regularise(t)
        iterates.descend(t, total, scale)
        # Back to x_t, with which v_{t+1} is averaged.
        iterates.x, iterates.x_previous = iterates.x_previous, iterates.x
        ahead, again = iterates.w.copy(), (t + 1) / t
        if iterates.l2:
            iterates.regularise(t, ahead, again)
        iterates.descend(t, total, again * scale, ahead)
