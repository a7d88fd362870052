"""Anytime DP-MF: gradients at averages, and noise that is correlated over rounds (DP-FTRL)."""

import math
from typing import Any

from mu2mpi.core.arrays import IntArray
from mu2mpi.core.registry import register
from mu2mpi.federation.batching import Batching
from mu2mpi.federation.estimators import AVERAGED_ITERATE, GRADIENT_ESTIMATOR
from mu2mpi.federation.problem import Problem
from mu2mpi.methods.method import Iterates, Method, PresetOptions
from mu2mpi.methods.presets.practical import PresetConstants
from mu2mpi.privacy.mechanisms.correlated_mechanism import CorrelatedOptions, check_correlated_rounds
from mu2mpi.privacy.mechanisms.mechanism import Mechanism
from mu2mpi.privacy.noise.correlation import Correlation


@register
class AnytimeDpMf(Method):
    """DP-FTRL with matrix factorisation (Denisov et al., 2022), with gradients at averaged iterates."""

    name, title = "anytime-dp-mf", "Anytime DP-MF"
    summary = "gradients at averages, with correlated noise that cancels over rounds"
    options, estimator, query_point = PresetOptions, GRADIENT_ESTIMATOR, AVERAGED_ITERATE
    mechanism = "correlated"
    supports_partial_participation = True

    def practical_diameter_factor(self, experiment: Any) -> float:
        """Return the factor 3 of the preset's diameter: earlier iterates are noisier than the last one."""
        return 3.0

    def practical_eta_scale(self, constants: PresetConstants) -> float:
        """Return the preset's eta_scale: the noise std of w_T is `model_noise_std`, or mu^2-SGD's."""
        rounds, experiment = constants.single_pass_rounds, constants.experiment
        check_correlated_rounds(rounds)
        options = experiment.mechanism_options
        options = options if isinstance(options, CorrelatedOptions) else CorrelatedOptions()
        noise = Correlation(*options.power_and_buffers, rounds, normalizes_columns=True, is_cumulative=False)
        eta = constants.model_noise_std * experiment.rho * constants.noise_reduction
        eta /= constants.sensitivity * noise.total_noise_std()
        max_eta = 2 * constants.machines / constants.smoothness_at_unit_margin
        return float(8 * constants.L * min(eta, max_eta))

    def max_eta(self, problem: Problem, batching: Batching) -> float:
        """Return the largest learning rate 1 / (8 L), whose T steps sum to about those of mu^2-SGD."""
        return 1 / (8 * problem.smoothness)

    def gradient_error(self, problem: Problem, batching: Batching, mechanism: Mechanism) -> float:
        """Return the RMS error of the sum of the T averaged messages, divided by sqrt(T)."""
        if (correlation := mechanism.correlation) is None:
            return super().gradient_error(problem, batching, mechanism)
        sigma, noise_reduction = problem.noise_std_and_reduction(mechanism)
        noise_std = sigma * correlation.total_noise_std() / math.sqrt(mechanism.rounds)
        noise_error = math.sqrt(problem.d) * noise_std / noise_reduction
        return math.hypot(self.clip_norm(problem) / math.sqrt(problem.effective_machines), noise_error)

    def theory_eta(self, problem: Problem, batching: Batching, mechanism: Mechanism) -> float:
        """Return the learning rate min(D / sqrt(V T), 1 / (8 L)), where V is `gradient_error` squared."""
        error = self.gradient_error(problem, batching, mechanism)
        return min(problem.diameter / (error * math.sqrt(batching.rounds)), self.max_eta(problem, batching))

    def state_names(self, options: Any) -> tuple[str, ...]:
        return ("sum",)

    def iterates_reveal_messages(self, options: Any) -> bool:
        """Return True: consecutive iterates within the ball determine the averaged messages."""
        return True

    def step(self, iterates: Iterates, t: int, message_sum: IntArray, step_factor: float) -> None:
        """Take a lazily projected step (Zinkevich, 2003): correlated noise cancels in the sum of steps."""
        steps = iterates.optimizer_state["sum"]
        iterates.apply_regulariser(t, steps)
        iterates.projected_step(t, message_sum, step_factor, dual=steps)

    def step_size(self, eta: float, rounds: int, t: int) -> float:
        return eta
