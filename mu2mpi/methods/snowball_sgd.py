"""Snowball SGD: growing batches and a private last iterate (privacy amplification by iteration)."""

import math
from dataclasses import replace
from itertools import accumulate
from typing import Any

from mu2mpi.core.arrays import FloatArray, IntArray
from mu2mpi.core.errors import InputError
from mu2mpi.core.lazy import np
from mu2mpi.core.registry import lookup, register
from mu2mpi.data.partition import check_enough_samples
from mu2mpi.federation.batching import Batching, DisjointBatches
from mu2mpi.federation.estimators import GRADIENT_ESTIMATOR, LAST_ITERATE
from mu2mpi.federation.problem import Problem
from mu2mpi.federation.run_constants import RunConstants
from mu2mpi.methods.method import Iterates, Method, PresetOptions, check_output_alone
from mu2mpi.methods.presets.practical import PresetConstants
from mu2mpi.privacy.mechanisms import last_iterate_mechanism
from mu2mpi.privacy.mechanisms.mechanism import Mechanism
from mu2mpi.privacy.noise.grid import MAX_NORMAL_DRAW
from mu2mpi.privacy.released_sums import ReleasedSums

# Ratio of clipping norm to G at which rounded gradients are never clipped: clipped steps need not contract.
CLIP_NORM_OVER_G = 1 + 2.0**-10
_UNIT_ROUNDOFF = 1.01 * 2.0**-53  # bound on an operation's relative error; 1.01 covers products of errors


@register
class SnowballSgd(Method):
    """Snowball SGD: Feldman, Koren and Talwar, "Private stochastic convex optimization", 2020."""

    name, title = "snowball-sgd", "Snowball SGD (last iterate alone)"
    summary = "gradients of growing batches; protects the last iterate alone"
    options, estimator, query_point = PresetOptions, GRADIENT_ESTIMATOR, LAST_ITERATE
    mechanism = "last-iterate"
    preset_settings = dict.fromkeys(["diameter"])

    def check_experiment(self, experiment: Any, options: Any) -> None:
        """Raise ValueError if an adversary would observe other iterates, or steps would not contract."""
        check_output_alone(experiment)
        if experiment.clip_norm is not None:
            raise ValueError(
                "--method snowball-sgd does not support --clip-norm: its privacy needs contractive steps. "
                "Leave --clip-norm out."
            )
        if experiment.eta_scale is not None and experiment.eta_scale > 1:
            raise ValueError(
                "--eta-scale must be at most 1 with --method snowball-sgd, whose privacy needs contractive "
                f"steps, got {experiment.eta_scale:g}."
            )

    def choose_settings(self, constants: PresetConstants) -> dict[str, Any]:
        """Return the practical preset's diameter, for margins up to 1 if G grows with the diameter."""
        preset, experiment, public_facts, *_ = constants
        max_margin = lookup("losses", experiment.loss).practical_defaults.max_margin
        small_ball = preset.practical_constants(experiment, public_facts, 1 / max_margin)
        return {"diameter": small_ball.diameter if constants.G > small_ball.G else constants.diameter}

    def batching(self, problem: Problem, rounds: int | None) -> Batching:
        """Return growing batches in as many rounds as samples allow, and an empty last one."""
        final_batch = last_iterate_mechanism.final_batch_size(problem.machines, problem.d, problem.budget.rho)
        if rounds is None:
            rounds = last_iterate_mechanism.max_steps(problem.samples, final_batch) + 1
            if rounds == 1:
                raise InputError(
                    f"--method snowball-sgd with --rho {problem.budget.rho:g} needs "
                    f"{math.ceil(final_batch):,} samples per machine, got {problem.samples:,}. "
                    "Use a larger --rho or more --machines."
                )
        if problem.max_samples_per_machine is not None:
            # Each step uses at least one sample; this check precedes the list of batches, which takes memory.
            check_enough_samples(problem.max_samples_per_machine, problem.machines, rounds, rounds - 1)
        last_iterate_mechanism.check_sgd_rounds(rounds)
        batches = [*last_iterate_mechanism.growing_batch_sizes(rounds - 1, final_batch).tolist(), 0]
        return DisjointBatches.from_batch_ends(tuple(accumulate(batches)))

    def clip_norm(self, problem: Problem) -> float:
        """Return the clipping norm, which rounded gradients never exceed."""
        # Only an audit sets a clipping norm: its gradients do not depend on the model, so steps contract.
        if problem.clip_norm is not None:
            return problem.clip_norm
        return max(problem.G * CLIP_NORM_OVER_G, problem.loss_constants_with_tolerance.G * (1 + 2.0**-12))

    def released_sums(
        self, problem: Problem, batching: Batching, participations: int | None = None
    ) -> ReleasedSums:
        """Describe the released sums, with a gradient bound that allows for rounding errors of features."""
        # The tolerance that the mechanism itself adds to it suffices for losses that grow slowly.
        tolerance = last_iterate_mechanism.GRADIENT_NORM_TOLERANCE
        gradient_norm = max(problem.G, problem.loss_constants_with_tolerance.G / (1 + tolerance))
        released_sums = super().released_sums(problem, batching, participations)
        return replace(released_sums, max_gradient_norm=gradient_norm, hides_iterates=True)

    def max_eta(self, problem: Problem, batching: Batching) -> float:
        """Return the largest learning rate with contractive steps, about 2 / L."""
        smoothness = problem.loss_constants_with_tolerance.L + problem.l2
        return min(2 * (1 - 2.0**-18) / problem.smoothness, 2 * (1 - 2.0**-20) / smoothness)

    def theory_eta(self, problem: Problem, batching: Batching, mechanism: Mechanism) -> float:
        """Return the learning rate min(D / (e sqrt(T - 1)), `max_eta`), e: RMS norm of noisy gradients."""
        # Jain, Nagaraj, Netrapalli, "Making the last iterate of SGD information theoretically optimal", 2019.
        noise_std = mechanism.sigma / problem.machines
        gradient_rms = math.hypot(mechanism.clip_norm, math.sqrt(problem.d) * noise_std)
        eta = problem.diameter / (gradient_rms * math.sqrt(batching.rounds - 1))
        return min(eta, self.max_eta(problem, batching))

    def run_constants(self, problem: Problem, batching: Batching) -> RunConstants:
        """Return the constants of a run; InputError if rounding errors of the last step are too large."""
        constants = super().run_constants(problem, batching)
        if constants.mechanism.is_noisy:
            check_last_step_precision(constants)
        return constants

    def step_size(self, eta: float, rounds: int, t: int) -> float:
        """Return the step size of round t: eta, halved repeatedly towards the last round."""
        return eta * float(last_iterate_mechanism.halving_step_sizes(rounds - 1)[t - 1])

    def step(self, iterates: Iterates, t: int, message_sum: IntArray, step_factor: float) -> None:
        """Take a projected step; the last one starts at w rounded to the grid, so that noise covers it."""
        iterates.apply_regulariser(t)
        if t == iterates.constants.rounds - 1 and iterates.constants.mechanism.is_noisy:
            coarsening = last_iterate_mechanism.LAST_STEP_COARSENING
            step_factor *= coarsening
            message_sum = message_sum // coarsening - np.rint(iterates.w / step_factor).astype(np.int64)
            iterates.w.fill(0.0)
        iterates.projected_step(t, message_sum, step_factor)


# Exact steps do not increase the distance of two iterates; rounding errors may (docs/background/methods.md).


def gradient_rounding_error(features: int, radius: float, G: float, L: float, roundoffs: float) -> float:
    """Return a bound on the rounding error of a gradient, from its margins and from `roundoffs` times G."""
    return _UNIT_ROUNDOFF * (features * radius * L + roundoffs * G)


def iterate_rounding_error(d: int, radius: float, step_norms: FloatArray) -> FloatArray:
    """Return bounds on the norms of rounding errors of projected steps, given the norms of the steps."""
    from mu2mpi.losses.model.ball import COORDINATES_PER_NORM_BLOCK

    additions = min(COORDINATES_PER_NORM_BLOCK, d) + math.ceil(d / COORDINATES_PER_NORM_BLOCK)
    return _UNIT_ROUNDOFF * (radius * (additions / 2 + 6) + 3 * step_norms)


def step_expansion_bounds(constants: RunConstants) -> FloatArray:
    """Return bounds on the increase of the distance of two iterates by rounding, per step, shape (T - 1,).

    Errors of both iterates count, those after a step's noise in the next step, which may divide by a spacing.
    """
    problem, radius = constants.problem, constants.problem.radius
    etas = constants.eta * last_iterate_mechanism.halving_step_sizes(constants.rounds - 1)
    noise_std = constants.mechanism.sigma / problem.machines
    G, L, roundoffs, *_ = problem.loss_constants_with_tolerance
    if roundoffs is None:
        raise InputError(
            f"--loss {problem.loss.name} has no bound on rounding errors (gradient_roundoffs), "
            "which --method snowball-sgd needs. Use another --loss or --method."
        )
    gradient_errors = gradient_rounding_error(problem.features, radius, G, L, roundoffs)
    step_norms = etas * (problem.G + MAX_NORMAL_DRAW * noise_std * math.sqrt(problem.d))
    # The regulariser adds a product with the iterate and a difference to each step.
    regulariser_error = 3 * _UNIT_ROUNDOFF * radius if problem.l2 else 0.0
    iterate_errors = iterate_rounding_error(problem.d, radius, step_norms) + regulariser_error
    earlier_errors: FloatArray = np.append(0.0, iterate_errors[:-1])
    earlier_errors[-1] += _UNIT_ROUNDOFF * radius
    return 2 * (etas * gradient_errors + earlier_errors)


def check_last_step_precision(constants: RunConstants) -> None:
    """Raise InputError if the last grid needs over 62 bits, or rounding errors exceed their share of rho."""
    T, problem, mechanism = constants.rounds, constants.problem, constants.mechanism
    diameter, rho = problem.diameter, problem.budget.rho
    last_scale = constants.step_size(T - 1) / (problem.machines * constants.batching.batch_size(T - 1))
    coarsening = last_iterate_mechanism.LAST_STEP_COARSENING
    if problem.radius > 2.0**62 * coarsening * mechanism.grid_spacing * last_scale:
        raise InputError(
            f"--rounds {T} with --diameter {diameter:g} needs more than 62 bits for the last iterate. "
            "Use fewer --rounds or a smaller --diameter."
        )
    noise_std = mechanism.sigma / problem.machines
    noise_stds = constants.eta * last_iterate_mechanism.halving_step_sizes(T - 1) * noise_std
    sensitivities, expansions = np.zeros(len(noise_stds)), step_expansion_bounds(constants)
    rounding_rho = last_iterate_mechanism.last_iterate_rho(sensitivities, noise_stds, expansions).max()
    rounding_share = last_iterate_mechanism.ROUNDOFF_RHO_SHARE
    if not rounding_rho <= rho * rounding_share / (1 + rounding_share):
        raise InputError(
            f"Rounding errors exceed their share of the privacy budget with --rounds {T}, --rho {rho:g}, "
            f"--diameter {diameter:g} and eta = {constants.eta:g}. Use fewer --rounds, a smaller --diameter, "
            "or a larger --rho or --eta-scale."
        )
