"""Localized SRGD: accelerated steps in phases, each regularised about the output of the phase before."""

import math
from dataclasses import replace
from functools import partial
from typing import Any

from pydantic import Field

from mu2mpi.core.arrays import IntArray
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import register
from mu2mpi.federation.batching import Batching, PhaseBatches
from mu2mpi.federation.estimators import GRADIENT_ESTIMATOR, LAST_ITERATE
from mu2mpi.federation.problem import Problem
from mu2mpi.methods.method import Iterates, Method, PresetOptions
from mu2mpi.methods.presets.practical import PresetConstants, round_to_four_digits
from mu2mpi.privacy.mechanisms.mechanism import Mechanism
from mu2mpi.privacy.released_sums import UNIT_SENSITIVITIES

MAX_PHASES = 16
_REGULARISER_GROWTH = 8.0  # from phase to phase: of all factors, the one with the least bound


class LocalizedOptions(PresetOptions):
    """Options of localized SRGD: the number of phases, and the regulariser of the first one."""

    phases: int | None = Field(None, ge=1, le=MAX_PHASES, description="number of phases [default: theory]")
    phase_l2: float | None = Field(None, gt=0, description="lambda of the first phase [default: theory]")


@register
class LocalizedSrgd(Method):
    """Localized SRGD: Gao et al., "Private heterogeneous federated learning without a trusted server", 2024.

    Phases are those of Feldman, Koren and Talwar, 2020, and steps the AC-SA of Ghadimi and Lan, 2012, on all
    samples of the phase (docs/background/methods.md).
    """

    name, title = "localized-srgd", "localized SRGD"
    summary = "accelerated steps in phases, regularised about the output of the last phase"
    options, estimator, query_point = LocalizedOptions, GRADIENT_ESTIMATOR, LAST_ITERATE
    preset_settings = dict.fromkeys(("clip_norm", "diameter", "rounds", "eta_scale", "phases", "phase_l2"))

    def audit_settings(self, machines: int, rounds: int, options: Any) -> tuple[int, dict[str, Any]]:
        """Return the audit's samples per machine, two in the last phase, and by default two phases."""
        phases = options.phases or 2
        return 2 * (2**phases - 1), {"phases": phases}

    def choose_settings(self, constants: PresetConstants) -> dict[str, Any]:
        """Return the practical preset's settings: two phases of up to 200 rounds, and steps of 1 / (2 L)."""
        n, L = constants.public_facts.samples // constants.machines, constants.smoothness_at_unit_margin
        phases = constants.experiment.phases or (1 if n < 3 or constants.experiment.rounds == 1 else 2)
        step_sum = constants.noise_limited_step_sum(n * constants.noise_reduction)
        phase_l2 = round_to_four_digits(max(0.5 / step_sum, L * (1.5 / 200) ** 2))
        rounds = phases * max(2, round(1.5 * math.sqrt(L / phase_l2)))
        return constants.settings(constants.L / L, rounds=rounds, phases=phases, phase_l2=phase_l2)

    def batching(self, problem: Problem, rounds: int | None) -> PhaseBatches:
        """Return the batches of phases: by default of as many phases as give the least bound."""
        n, phases = problem.samples, problem.method_options.phases
        max_phases = min(MAX_PHASES, (n + 1).bit_length() - 1, rounds or MAX_PHASES)
        if (phases or 1) > max_phases:
            limits = f"{rounds or 'as many'} rounds and halvings of {n:,} samples"
            raise InputError(f"--phases must be at most {max_phases} ({limits}), got {phases}.")
        candidates = []
        for k in [phases] if phases else range(1, max_phases + 1):
            batching = PhaseBatches.halving(n, k, k)
            # After this many rounds of a phase, the bound is at most about twice its limit.
            phase_rounds = 5 * math.sqrt(problem.smoothness / self.first_regulariser(problem, batching))
            phase_rounds = math.ceil(max(2, min(phase_rounds, 10_000)))
            candidates.append(replace(batching, rounds=rounds or k * phase_rounds))
        return min(candidates, key=partial(self._loss_bound, problem))

    def resolve_options(self, problem: Problem, batching: Any) -> dict[str, Any]:
        return {"phases": batching.phases}

    def first_regulariser(self, problem: Problem, batching: Any) -> float:
        """Return lambda of the first phase: the option, or sqrt(8) H / D.

        For many rounds, the bound on the excess loss tends to lambda D^2 / 8 + H^2 / lambda.
        """
        if (phase_l2 := problem.method_options.phase_l2) is not None:
            return float(phase_l2)
        C, n, k = self.clip_norm(problem), batching.max_batch_size, batching.phases
        noise = self._mean_noise(problem, n)
        squared_H = 8 / 3 * C * C / (n * problem.machines) * (1 - 4.0**-k)
        squared_H += 32 * noise * noise * (1 - 2.0 ** (1 - k)) + 2 * C * noise * 4.0 ** (1 - k)
        return math.sqrt(8 * squared_H) / problem.diameter

    def _mean_noise(self, problem: Problem, batch_size: float) -> float:
        """Return the RMS norm of the noise in the mean of a phase's average gradients, for any rounds."""
        sensitivity = UNIT_SENSITIVITIES[problem.neighbours] * self.clip_norm(problem)
        noise_divisor = problem.budget.rho * problem.noise_reduction * batch_size
        return sensitivity * math.sqrt(problem.d) / noise_divisor

    def max_eta(self, problem: Problem, batching: Batching) -> float:
        return 1 / (2 * problem.smoothness)

    def theory_eta(self, problem: Problem, batching: Batching, mechanism: Mechanism) -> float:
        """Return the learning rate 1 / (2 L): it is the regularisers that limit the effect of noise."""
        return self.max_eta(problem, batching)

    def excess_loss_bound(self, problem: Problem, batching: Batching, mechanism: Mechanism) -> float:
        """Return the excess loss bound (docs/background/methods.md), or NaN if gradients may be clipped."""
        is_covered = self.is_proven_for(problem, mechanism) and mechanism.clip_norm >= problem.G
        return self._loss_bound(problem, batching) if is_covered else math.nan

    def _loss_bound(self, problem: Problem, batching: Any) -> float:
        """Return the bound on the excess loss at `max_eta`, by recursion over phases.

        `excess` bounds that of a phase's minimiser, `error` the mean squared distance of its output from it.
        """
        D, L, G = problem.diameter, problem.smoothness, self.clip_norm(problem)
        regulariser, lipschitz = self.first_regulariser(problem, batching), G + problem.l2 * problem.radius
        excess, error, max_distance = 0.0, D * D / 4, D / 2
        for phase in range(1, batching.phases + 1):
            end = batching.phase_end(phase)
            steps = end - batching.phase_end(phase - 1) - (end == batching.rounds)  # The last round has none.
            stability = 2 * G * G / (regulariser * batching.batch_size(end) * problem.machines)
            # Mean squared distance of the phase's minimiser from its first iterate
            max_distance = min(max_distance, lipschitz / regulariser)
            distance = min(max_distance * max_distance, error + 2 * (excess + stability) / regulariser)
            excess += stability + regulariser * error / 2
            error = D * D
            if steps:
                noise = self._mean_noise(problem, batching.batch_size(end))
                noise_sum = 1 / (2 * L) + (steps + math.log(steps)) / regulariser
                noise_sum *= batching.phase_end(1) * noise * noise
                gap = 2 * (L * distance + noise_sum) / (steps * (steps + 1))
                error = min(error, 2 * gap / regulariser)
            regulariser, max_distance = regulariser * _REGULARISER_GROWTH, D
        return excess + lipschitz * math.sqrt(error)

    def state_names(self, options: Any) -> tuple[str, ...]:
        return "average", "centre"

    def step(self, iterates: Iterates, t: int, message_sum: IntArray, step_factor: float) -> None:
        """Take a step of AC-SA from round s of the phase, with exact steps of its regulariser about `centre`.

        The next query point is between w and the average of the phase's iterates with weights 1, 2, ...; the
        phase ends at this average.
        """
        constants, (average, centre) = iterates.constants, iterates.optimizer_state.values()
        batching: Any = constants.batching
        phase = batching.phase(t)
        s = t - batching.phase_end(phase - 1)
        regulariser = self.first_regulariser(constants.problem, batching)
        pull = constants.eta * regulariser * _REGULARISER_GROWTH ** (phase - 1)
        weight = s / (1 + pull * s * (s + 1) / 2)
        iterates.w *= 1 - weight * pull
        iterates.w += weight * pull * centre
        iterates.apply_regulariser(t, step_factor=weight)
        iterates.projected_step(t, message_sum, weight * step_factor)
        average += 2 / (s + 1) * (iterates.w - average)
        if t == batching.phase_end(phase) or t == constants.rounds - 1:
            iterates.w[...] = iterates.x[...] = centre[...] = average
        else:
            iterates.x[...] = average + 2 / (s + 2) * (iterates.w - average)
