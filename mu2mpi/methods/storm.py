"""STORM: corrected momentum at the iterates themselves."""

import math
from typing import Any

from mu2mpi.core.registry import find, register
from mu2mpi.data.source import PublicFacts
from mu2mpi.federation.batching import Sampling
from mu2mpi.federation.estimators import CORRECTED_MOMENTUM, ITERATE
from mu2mpi.federation.task import Task
from mu2mpi.methods.method import Method, PresetOptions
from mu2mpi.methods.presets.practical import STEP, Choices, gathered, rounds_of_one_pass
from mu2mpi.privacy.mechanisms.mechanism import Mechanism


@register
class Storm(Method):
    """Cutkosky and Orabona, "Momentum-based variance reduction in non-convex SGD", 2019."""

    name, title, summary = "storm", "STORM", "corrected momentum at iterates"
    options = PresetOptions
    estimator, query = CORRECTED_MOMENTUM, ITERATE
    takes_absence = True

    def check(self, asked: Any, options: Any) -> None:
        """Ask for a clipping norm."""
        if asked.clip_norm is None and options.preset is None:
            raise ValueError(
                "estimator = corrected-momentum at query = iterate needs a clip_norm: iterates may lie a "
                "diameter apart in any round, so increments have no bound that noise could be scaled to; "
                "give --clip-norm or --preset practical, or query = average, where none passes G + 2LD"
            )

    def widening(self, asked: Any) -> float:
        """Return 1/8, or 8 times the noise of margins: the edge makes w forget the noise of first steps."""
        own = find("losses", asked.loss).practical
        return float(min(1 / 8, 8.0 * own.noise / own.reach))

    def practical_scale(self, asked: Any, facts: PublicFacts, chosen: Choices) -> float:
        """Return it by noise: of sqrt(3/2) / T from T / 2 on, weights gather 1/20 of what they may."""
        T = rounds_of_one_pass(asked, facts)
        by_noise = 0.05 * math.sqrt(T / 1.5) * gathered(asked, chosen)
        return 9 * chosen.L * min(by_noise, STEP * math.sqrt(T) / chosen.nearby)

    def largest_rate(self, task: Task, sampling: Sampling) -> float:
        """Return 1 / (9 L)."""
        return 1 / (9 * task.smoothness)

    def base_rate(self, task: Task, sampling: Sampling, mechanism: Mechanism) -> float:
        """Return min(rho D N / (2 C sqrt(d T)), 1 / (9 L)); see docs/background/methods.md."""
        C, D = mechanism.clip_norm, task.diameter
        learned = task.budget.rho * D * task.shared / (2 * C * math.sqrt(task.d) * math.sqrt(sampling.rounds))
        if task.per_machine is not None:
            learned = self.noise_rate(task, sampling, mechanism) * math.sqrt(sampling.rounds)
        return min(learned, self.largest_rate(task, sampling))

    def step_size(self, eta: float, rounds: int, t: int) -> float:
        """Return eta / (t sqrt(t + 1)): steps become smaller, and messages are weighted with t."""
        return eta / (t * math.sqrt(t + 1))
