"""Objective perturbation: minimise the sum of losses, a regulariser and one random linear term."""

import math
from dataclasses import replace
from typing import Any

from mu2mpi.core.arrays import IntArray
from mu2mpi.core.errors import InputError
from mu2mpi.core.lazy import np
from mu2mpi.core.registry import lookup, register
from mu2mpi.federation.batching import Batching, CyclicBatches
from mu2mpi.federation.estimators import GRADIENT_ESTIMATOR, LAST_ITERATE
from mu2mpi.federation.problem import Problem
from mu2mpi.methods.method import Iterates, Method, PresetOptions
from mu2mpi.methods.presets.practical import PresetConstants, round_to_four_digits
from mu2mpi.privacy.mechanisms import objective_perturbation_mechanism as account
from mu2mpi.privacy.released_sums import ReleasedSums

_DETERMINANT_SHARE = 2.0**-3  # largest share of epsilon spent on the determinant of the Hessian
_MAX_CONDITION = 2.0**18  # largest n L / lambda: the number of rounds grows with its root
_ROUNDS_PER_ROOT = 48  # rounds in units of the root of the condition number: an error of about e^-24
_MODULUS = 2**52  # of stored sums, exact as floating-point numbers; noise is less than half of it


@register
class ObjectivePerturbation(Method):
    """Objective perturbation: Chaudhuri, Monteleoni and Sarwate, 2011; Redberg, Koskela and Wang, 2023."""

    name, title = "objective-perturbation", "objective perturbation (output alone)"
    summary = "minimum of all losses and a random linear term; protects the output alone"
    options, estimator, query_point = PresetOptions, GRADIENT_ESTIMATOR, LAST_ITERATE
    mechanism, keeps_iterates_in_ball = "objective-perturbation", False
    preset_settings = dict.fromkeys(["clip_norm", "diameter"])

    def check_experiment(self, experiment: Any, options: Any) -> None:
        """Raise ValueError if an adversary would observe other iterates, or settings have no meaning."""
        reveals_iterates = experiment.trust_mode.reveals_sums and (experiment.machines or 1) > 1
        has_other_steps = experiment.chosen_mechanism != self.mechanism or experiment.eta_scale is not None
        if reveals_iterates or has_other_steps or (experiment.evaluations or 1) > 1:
            raise ValueError(
                f"--method {self.name} has its own noise and steps, and protects its output alone. Use "
                "--server trusted or --machines 1; leave out --evaluations, --mechanism and --eta-scale."
            )

    def choose_settings(self, constants: PresetConstants) -> dict[str, Any]:
        """Return the practical preset's diameter, and its clipping norm for models of one row."""
        rows = lookup("losses", constants.experiment.loss).model_rows(constants.public_facts.classes)
        clip_norm = constants.clip_norm if rows == 1 else round_to_four_digits(1.01 * constants.G)
        return {"clip_norm": clip_norm, "diameter": constants.diameter}

    def audit_settings(self, machines: int, rounds: int, options: Any) -> tuple[int, dict[str, Any]]:
        """Return an audit's samples per machine: 2, of which all are in each batch."""
        return 2, {}

    def batching(self, problem: Problem, rounds: int | None) -> Batching:
        """Return full batches, by default in so many rounds that output noise is negligible."""
        n, minimum = problem.machines * problem.samples, account.MIN_ROUNDS
        condition = account.condition_number(n, problem.L, regularization(self, problem))
        rounds = rounds or minimum + math.ceil(_ROUNDS_PER_ROOT * math.sqrt(condition))
        if rounds < minimum:
            raise InputError(f"--method {self.name} needs --rounds of {minimum} or more, got {rounds}.")
        return CyclicBatches(problem.samples, rounds, problem.samples)

    def clip_norm(self, problem: Problem) -> float:
        """Return the clipping norm; InputError unless gradients, clipped or not, are those of such a loss."""
        constants = problem.loss_constants_with_tolerance
        if None in constants or not constants.residual_vertices:
            raise InputError(
                f"--method {self.name} needs bounds on the loss, which --loss {problem.loss.name} does not "
                "state for these classes. Use --loss logistic, huber or softmax, or another --method."
            )
        unclipped = constants.G * account.UNCLIPPED_NORM_OVER_G
        if problem.clip_norm is None or problem.clip_norm >= unclipped:
            return unclipped
        # Clipped gradients are those of a convex function if residuals of a label are on a line.
        if problem.model_rows > 1 and constants.residual_vertices > 1:
            raise InputError(
                f"--method {self.name} cannot clip gradients of several margins. Leave --clip-norm out."
            )
        return problem.clip_norm

    def released_sums(
        self, problem: Problem, batching: Batching, participations: int | None = None
    ) -> ReleasedSums:
        """Describe the released sums, with the bounds on the losses that the account depends on."""
        loss_bounds = problem.loss_constants_with_tolerance._asdict()
        loss_bounds["regularization"] = regularization(self, problem)
        return replace(super().released_sums(problem, batching, participations), loss_bounds=loss_bounds)

    def theory_eta(self, problem: Problem, batching: Batching, mechanism: Any) -> float:
        """Return the inverse of the smoothness of the mean objective."""
        return problem.machines * problem.samples / float(mechanism.condition * mechanism.regularization)

    def state_names(self, options: Any) -> tuple[str, ...]:
        return "linear_term", "sum_modulo"

    def step(self, iterates: Iterates, t: int, message_sum: IntArray, step_factor: float) -> None:
        """Take a step of Nesterov's method; the sums of rounds 1 and T - 1 differ from others by noise alone.

        The noise of round 1 is the linear term, and that of round T - 1 is for the output. Before, models may
        leave the ball. Nesterov, "Introductory lectures on convex optimization", 2004: Section 2.2.1.
        """
        w, x, T, m = iterates.w, iterates.x, iterates.constants.rounds, iterates.constants.mechanism
        objective: Any = m
        linear_term, sum_modulo = (iterates.optimizer_state[name] for name in self.state_names(None))
        difference = (message_sum - sum_modulo.astype(np.int64) + _MODULUS // 2) % _MODULUS - _MODULUS // 2
        sum_modulo[...] = message_sum % _MODULUS
        if t == T - 1:
            if m.is_noisy:
                unit = objective.output_sigma * m.grid_spacing / m.sigma
                w[...] = unit * (np.rint(x / unit).astype(np.int64) + difference)
            iterates.projected_step(t, message_sum, 0.0)
            return
        if t == 2:
            linear_term[...] = -m.grid_spacing * difference
        gradient = m.grid_spacing * message_sum + linear_term + objective.regularization * x
        moves, root = 1 < t < T - 2, math.sqrt(objective.condition)
        w_next = x - moves * gradient / (objective.condition * objective.regularization)
        momentum = (root - 1) / (root + 1) if t < T - 3 else 0.0  # The last sums are taken at w.
        iterates.x_previous[...] = w_next + momentum * (w_next - w)
        w[...] = w_next
        iterates.swap_query_points()


def regularization(method: ObjectivePerturbation, problem: Problem) -> float:
    """Return lambda of the regulariser lambda ||x||^2 / 2 of the sum of losses, from public facts alone.

    lambda = sigma sqrt(d) / R minimises lambda R^2 / 2 + d sigma^2 / (2 lambda), a bound on the excess loss.
    In directions without curvature, models have at most the noise of the practical preset.
    """
    constants, budget = problem.loss_constants_with_tolerance, problem.budget
    n, determinant_epsilon = problem.machines * problem.samples, _DETERMINANT_SHARE * budget.epsilon
    if not determinant_epsilon > 0:
        raise InputError(f"--method {method.name} needs a positive epsilon. Use a larger --rho or --epsilon.")
    least = max((constants.curvature or 0.0) / determinant_epsilon, n * constants.L / _MAX_CONDITION)
    least = max(least, n * problem.l2)
    if math.isinf(budget.rho):
        return least
    parameters = budget.epsilon - determinant_epsilon, budget.delta, constants.residual_vertices
    sigma = method.clip_norm(problem) * account.noise_multiplier(*parameters, problem.neighbours)
    margin_ratio = math.sqrt(problem.max_squared_norm) / problem.loss.practical_defaults.margin_noise_std
    return max(least, sigma * max(math.sqrt(problem.d) / problem.radius, margin_ratio))
