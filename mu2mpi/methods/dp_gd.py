"""DP-GD: gradient descent, each step with all samples or with the next of passes over them."""

import math
from typing import TYPE_CHECKING, Any

from pydantic import Field

from mu2mpi.core.registry import find, register
from mu2mpi.data.source import PublicFacts
from mu2mpi.federation.batching import Cyclic, Sampling
from mu2mpi.federation.estimators import GRADIENT, ITERATE
from mu2mpi.federation.task import Task
from mu2mpi.federation.trust_mode import shared_by
from mu2mpi.methods.method import Method, PresetOptions, batch_field, check_batch, tail_field
from mu2mpi.methods.presets.practical import PracticalPreset
from mu2mpi.privacy.mechanisms.mechanism import Mechanism

if TYPE_CHECKING:
    from mu2mpi.federation.iterates import Integers, Iterates


class DpGdOptions(PresetOptions):
    """How many samples are in a round, and what becomes of steps and iterates."""

    batch: int | None = batch_field(
        "samples of each machine in a round, in passes over all that it has [default: all, in each round]"
    )
    tail: float | None = tail_field("the mean of all but the first")
    momentum: float | None = Field(
        None, ge=0, lt=1, description="share of a step that goes on into the next [default: none]"
    )


@register
class DpGd(Method):
    """Bassily, Smith and Thakurta, "Private empirical risk minimization", 2014, with steps of full length."""

    name, title = "dp-gd", "DP-GD"
    summary = "gradients of all samples in each round, or of passes over them"
    options = DpGdOptions
    takes_absence = True
    estimator, query = GRADIENT, ITERATE
    chooses = dict.fromkeys(("clip_norm", "diameter", "rounds", "tail", "eta_scale", "momentum"))

    def worst_case(self, machines: int, rounds: int, options: Any) -> tuple[int, dict[str, Any]]:
        """Return two samples in each round, or so few that the first of a batch soon comes again."""
        return (math.ceil(1.5 * options.batch) if options.batch else 2), {}

    def practical(self, preset: PracticalPreset, asked: Any, facts: PublicFacts) -> dict[str, Any]:
        """Return the settings of the practical mode, with a momentum so that a tenth of the rounds does.

        The noise of the average gradients of T rounds adds up to that of one with sqrt(n K) samples of
        each.
        """
        n = facts.samples / (asked.machines or 1)
        K = min(n, asked.batch or n)
        momentum = 0.9 if asked.momentum is None else asked.momentum
        hidden, rounds = math.sqrt(n * K) * shared_by(asked), (20, round(400 * n / K))
        chosen = preset.descent(
            asked, facts, hidden=hidden, rounds=rounds, tail=0.25, times=1 / (1 - momentum)
        )
        return {**chosen, "momentum": momentum}

    def mean_from(self, rounds: int, options: Any) -> int | None:
        """Return the second round: the first query point is where no step has been taken; or the tail's."""
        return super().mean_from(rounds, options) or 2

    def sampling(self, task: Task, rounds: int | None) -> Sampling:
        """Return whole passes, in as many rounds as make L D^2 / (8 R) no larger than the rest, D e / 2."""
        n, C = task.samples, self.clip_norm(task)
        K = task.options.batch or n
        check_batch(K, n, "a machine")
        if rounds is None:
            noise = 2 * math.sqrt(task.d) / (task.budget.rho * task.shared * math.sqrt(n * K))
            e = C * math.hypot(noise, math.sqrt(2 / (n * task.machines)))
            # With 10,000 passes the error of optimisation is far below the others.
            steps = math.ceil(min(task.smoothness * task.diameter / (4 * e), 10_000))
            rounds = math.ceil((steps + 1) * K / n) * n // K
        return Cyclic(min(n, K * rounds), rounds, K)

    def error(self, task: Task, sampling: Sampling, mechanism: Mechanism) -> float:
        """Return the error of a gradient, with what it costs others to use the same samples again."""
        T, n, K = sampling.rounds, task.samples, sampling.size(1)
        sigma, shared = task.noise_of(mechanism)
        noise = math.sqrt(task.d) * sigma / (shared * K)
        of_samples = math.sqrt((1 / K - 1 / n + 2 * T / n) / task.effective_machines)
        return math.hypot(noise, self.clip_norm(task) * of_samples)

    def base_rate(self, task: Task, sampling: Sampling, mechanism: Mechanism) -> float:
        """Return 1 / (L + b) with b = 2 sqrt(V T) / D, of least `loss_bound`; times 1 - momentum."""
        slack = 2 * self.error(task, sampling, mechanism) * math.sqrt(sampling.rounds) / task.diameter
        return (1 - (task.options.momentum or 0)) / (task.smoothness + slack)

    def loss_bound(self, task: Task, sampling: Sampling, mechanism: Mechanism, is_own_rate: bool) -> float:
        """Return D^2 / (8 eta R) + V / (2 (1 / eta - L)), R = T - 1, for plain steps on full batches."""
        R, own = sampling.rounds - 1, task.options
        is_plain = sampling.is_same and own.tail is None and not own.momentum and R > 0
        is_plain = is_plain and task.unequal is None
        is_whole = mechanism.clip_norm >= task.G and isinstance(mechanism, find("mechanisms", self.mechanism))
        if not (is_plain and is_whole and is_own_rate):
            return math.nan
        # With 1 / eta - L = b of `base_rate`, the second part is as follows, which is never 0 / 0.
        second = task.diameter * self.error(task, sampling, mechanism) / (4 * math.sqrt(sampling.rounds))
        return task.diameter**2 / (8 * self.base_rate(task, sampling, mechanism) * R) + second

    def state(self, options: Any) -> tuple[str, ...]:
        """Return the iterate before w, with momentum."""
        return ("w_previous",) if options.momentum else ()

    def has_plain_step(self, options: Any) -> bool:
        """Return whether there is no momentum."""
        return not options.momentum

    def step(self, iterates: "Iterates", t: int, total: "Integers", scale: float) -> None:
        """Take w_{t+1} = proj(w_t + beta (w_t - w_{t-1}) - eta g_t) with momentum beta: Polyak, 1964."""
        if momentum := iterates.constants.task.options.momentum:
            w, previous = iterates.w, iterates.state["w_previous"]
            before = w.copy()
            w += momentum * (before - previous)
            previous[...] = before
        super().step(iterates, t, total, scale)
