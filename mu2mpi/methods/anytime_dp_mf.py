"""Anytime DP-MF: gradients at averages, and noise that is correlated over rounds (DP-FTRL)."""

import math
from typing import TYPE_CHECKING, Any

from mu2mpi.core.registry import register
from mu2mpi.data.source import PublicFacts
from mu2mpi.federation.batching import Batching
from mu2mpi.federation.estimators import AVERAGED_ITERATE, GRADIENT
from mu2mpi.federation.task import Task
from mu2mpi.federation.trust_mode import experiment_noise_reduction
from mu2mpi.methods.method import Method, PresetOptions
from mu2mpi.methods.presets.practical import PresetConstants, single_pass_rounds
from mu2mpi.privacy.mechanisms.correlated_mechanism import CorrelatedOptions, check_rounds
from mu2mpi.privacy.mechanisms.mechanism import Mechanism

if TYPE_CHECKING:
    from mu2mpi.federation.iterates import Integers, Iterates


@register
class AnytimeDpMf(Method):
    """DP-FTRL: Kairouz et al., "Practical and private (deep) learning without sampling or shuffling", 2021.

    Here with a matrix factorisation (Denisov et al., 2022), and gradients at averages (Cutkosky, 2019).
    """

    name, title = "anytime-dp-mf", "Anytime DP-MF"
    summary = "gradients at averages, with correlated noise that cancels over rounds"
    options = PresetOptions
    estimator, query = GRADIENT, AVERAGED_ITERATE
    mechanism = "correlated"
    supports_partial_participation = True

    def practical_diameter_factor(self, experiment: Any) -> float:
        """Return 3: earlier iterates have several times the noise of the last one."""
        return 3.0

    def practical_eta_scale(self, experiment: Any, facts: PublicFacts, constants: PresetConstants) -> float:
        """Return the scale at which the noise of w_T reaches its limit, but at most that of mu^2-SGD."""
        from mu2mpi.privacy.noise.correlation import Correlation

        rounds = single_pass_rounds(experiment, facts)
        check_rounds(rounds)
        options = experiment.mechanism_options
        options = options if isinstance(options, CorrelatedOptions) else CorrelatedOptions()
        gain = Correlation(*options.strategy, rounds, normalized=True, is_cumulative=False).total_noise_std()
        sensitivity = 2 * constants.effective_clip_norm
        eta = (
            constants.weight_noise_std
            * experiment.rho
            * experiment_noise_reduction(experiment)
            / (sensitivity * gain)
        )
        max_eta = 2 * (experiment.machines or 1) / constants.unit_margin_smoothness
        return float(8 * constants.L * min(eta, max_eta))

    def max_eta(self, task: Task, batching: Batching) -> float:
        """Return 1 / (8 L), with which T rounds move as far as those of mu^2-SGD with its `max_eta`."""
        return 1 / (8 * task.smoothness)

    def gradient_error(self, task: Task, batching: Batching, mechanism: Mechanism) -> float:
        """Return the root mean squared error per round of the sum of all averaged messages."""
        if (correlation := mechanism.correlation) is None:
            return super().gradient_error(task, batching, mechanism)
        sigma, shared = task.noise_std_and_reduction(mechanism)
        noise_std = sigma * correlation.total_noise_std() / math.sqrt(mechanism.rounds)
        noise = math.sqrt(task.d) * noise_std / shared
        return math.hypot(self.clip_norm(task) / math.sqrt(task.effective_machines), noise)

    def theory_eta(self, task: Task, batching: Batching, mechanism: Mechanism) -> float:
        """Return min(D / sqrt(V T), 1 / (8 L)), where sqrt(V T) is the RMS error of the sum of messages."""
        error = self.gradient_error(task, batching, mechanism)
        return min(task.diameter / (error * math.sqrt(batching.rounds)), self.max_eta(task, batching))

    def state_names(self, options: Any) -> tuple[str, ...]:
        """Return the sum of all steps, whose projections are the iterates."""
        return ("sum",)

    def iterates_reveal_messages(self, options: Any) -> bool:
        """Return True: within the ball, lazy projection makes no difference."""
        return True

    def step(self, iterates: "Iterates", t: int, total: "Integers", scale: float) -> None:
        """Take a step from the unprojected sum of steps (lazy projection), in which correlated noise cancels.

        Zinkevich, "Online convex programming", 2003.
        """
        steps = iterates.state["sum"]
        if iterates.l2:
            iterates.apply_regulariser(t, steps)
        iterates.lazy_projected_step(steps, t, total, scale)

    def step_size(self, eta: float, rounds: int, t: int) -> float:
        """Return eta in all rounds."""
        return eta
