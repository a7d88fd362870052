"""Anytime DP-MF: prefix sums of plain gradients at averages, with noise that is correlated over rounds."""

import math
from typing import TYPE_CHECKING, Any

from mu2mpi.core.registry import register
from mu2mpi.data.source import PublicFacts
from mu2mpi.federation.batching import Sampling
from mu2mpi.federation.estimators import AVERAGE, GRADIENT
from mu2mpi.federation.task import Task
from mu2mpi.federation.trust_mode import shared_by
from mu2mpi.methods.method import Method, PresetOptions
from mu2mpi.methods.presets.practical import Choices, rounds_of_one_pass
from mu2mpi.privacy.mechanisms.correlated_mechanism import CorrelatedOptions, check_rounds
from mu2mpi.privacy.mechanisms.mechanism import Mechanism

if TYPE_CHECKING:
    from mu2mpi.federation.iterates import Integers, Iterates


@register
class AnytimeDpMf(Method):
    """Kairouz et al., "Practical and private (deep) learning without sampling or shuffling", 2021, DP-FTRL.

    With a matrix factorisation (Denisov et al., 2022), and gradients at averages (Cutkosky, 2019).
    """

    name, title = "anytime-dp-mf", "Anytime DP-MF"
    summary = "gradients at averages, with noise that cancels in the sum over rounds"
    options = PresetOptions
    estimator, query = GRADIENT, AVERAGE
    mechanism = "correlated"
    takes_absence = True

    def widening(self, asked: Any) -> float:
        """Return 3: on their way iterates have several times the noise of the last."""
        return 3.0

    def practical_scale(self, asked: Any, facts: PublicFacts, chosen: Choices) -> float:
        """Return what gives w_T the noise that weights may gather, or without noise the path of mu^2-SGD."""
        from mu2mpi.privacy.noise.correlation import Correlation

        rounds = rounds_of_one_pass(asked, facts)
        check_rounds(rounds)
        own = asked.mechanism_options
        strategy = own.strategy if isinstance(own, CorrelatedOptions) else CorrelatedOptions().strategy
        gain = Correlation(*strategy, rounds, normalized=True, lasts=False).gain()
        eta = chosen.noise * asked.rho * shared_by(asked) / (2 * chosen.clip * gain)
        return float(8 * chosen.L * min(eta, 2 * (asked.machines or 1) / chosen.nearby))

    def largest_rate(self, task: Task, sampling: Sampling) -> float:
        """Return 1 / (8 L): the path of all rounds is then as long as that of mu^2-SGD's longest steps."""
        return 1 / (8 * task.smoothness)

    def error(self, task: Task, sampling: Sampling, mechanism: Mechanism) -> float:
        """Return the root of the mean square error of a round's part in the sum of all."""
        if (correlation := mechanism.correlation) is None:
            return super().error(task, sampling, mechanism)
        sigma, shared = task.noise_of(mechanism)
        drawn = sigma * correlation.gain() / math.sqrt(mechanism.rounds)
        noise = math.sqrt(task.d) * drawn / shared
        return math.hypot(self.clip_norm(task) / math.sqrt(task.effective_machines), noise)

    def base_rate(self, task: Task, sampling: Sampling, mechanism: Mechanism) -> float:
        """Return D / sqrt(V T), but at most 1 / (8 L): V T is how far errors move w, in the mean square."""
        error = self.error(task, sampling, mechanism)
        return min(task.diameter / (error * math.sqrt(sampling.rounds)), self.largest_rate(task, sampling))

    def state(self, options: Any) -> tuple[str, ...]:
        """Return the sum of all steps, of which iterates are projections."""
        return ("sum",)

    def has_plain_step(self, options: Any) -> bool:
        """Return true: within the ball, lazy steps are plain ones."""
        return True

    def step(self, iterates: "Iterates", t: int, total: "Integers", scale: float) -> None:
        """Step from the sum of all steps, not its projection, so that later noise cancels in it.

        Zinkevich, "Online convex programming", 2003, has both.
        """
        steps = iterates.state["sum"]
        if iterates.l2:
            iterates.regularise(t, steps)
        iterates.descend_lazily(steps, t, total, scale)

    def step_size(self, eta: float, rounds: int, t: int) -> float:
        """Return eta."""
        return eta
