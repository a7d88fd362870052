"""Snowball SGD: growing batches, so that the noise of later steps hides all samples, in the last iterate."""

import math
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from mu2mpi.core.errors import InputError
from mu2mpi.core.lazy import NDArray, np
from mu2mpi.core.registry import find, register
from mu2mpi.data.partition import check_rounds
from mu2mpi.data.source import FEATURE_SLACK, PublicFacts
from mu2mpi.federation.batching import Batches, Sampling
from mu2mpi.federation.estimators import GRADIENT, ITERATE
from mu2mpi.federation.run_constants import RunConstants
from mu2mpi.federation.task import Task
from mu2mpi.methods.method import Method, PresetOptions
from mu2mpi.methods.presets.practical import PracticalPreset
from mu2mpi.privacy.mechanisms import last_iterate_mechanism
from mu2mpi.privacy.mechanisms.mechanism import Mechanism
from mu2mpi.privacy.noise.grid import MAX_NORMAL
from mu2mpi.privacy.release import Release

if TYPE_CHECKING:
    from mu2mpi.federation.iterates import Integers, Iterates
    from mu2mpi.losses.loss import Constants

# By what the norm C that noise is scaled to exceeds G: rounded gradients keep to it without being
# clipped. A clipped gradient may be no gradient of a convex function, and its step no contraction.
LOOSENESS = 1 + 2.0**-10
_ROUNDING = 1.01 * 2.0**-53  # relative error bound of one operation; the hundredth covers products of errors


@register
class SnowballSgd(Method):
    """Feldman, Koren and Talwar, "Private stochastic convex optimization", 2020."""

    name, title = "snowball-sgd", "Snowball SGD (last iterate alone)"
    summary = "gradients of growing batches, which protects the last iterate alone"
    options = PresetOptions
    estimator, query = GRADIENT, ITERATE
    mechanism = "last-iterate"
    chooses = dict.fromkeys(["diameter"])

    def check(self, asked: Any, options: Any) -> None:
        """Make sure that nobody sees an iterate who must not, that steps contract, and what is measured."""
        if asked.trust.shows_sums and (asked.machines or 1) > 1:
            raise ValueError(
                "method = snowball-sgd protects the last iterate alone, from whoever sees no other, and with "
                f"server = {asked.server} the server and all machines see the others; give --server trusted, "
                "or --machines 1"
            )
        if asked.clip_norm is not None:
            raise ValueError(
                "method = snowball-sgd takes gradients as they are: its privacy needs steps that contract, "
                "and those with clipped gradients need not; leave --clip-norm out"
            )
        if asked.eta_scale is not None and asked.eta_scale > 1:
            raise ValueError(
                f"eta_scale = {asked.eta_scale:g} is in units of 2/L, and steps of method = snowball-sgd "
                "that are longer do not contract, so that nothing is known of its privacy; give at most 1"
            )
        if asked.evaluations is not None and asked.evaluations > 1:
            raise ValueError(
                "method = snowball-sgd protects the last iterate alone, so that is where loss and accuracy "
                "are measured; give --evaluations 1, or leave it out"
            )

    def practical(self, preset: PracticalPreset, asked: Any, facts: PublicFacts) -> dict[str, Any]:
        """Return the ball of the practical mode: with margins of 1 where gradients grow with it."""
        reach = find("losses", asked.loss).practical.reach
        wide, narrow = preset.choices(asked, facts), preset.choices(asked, facts, 1 / reach)
        return {"diameter": narrow.diameter if wide.G > narrow.G else wide.diameter}

    def sampling(self, task: Task, rounds: int | None) -> Sampling:
        """Return as many steps as the samples allow, and one more round that shows the last iterate."""
        growth = last_iterate_mechanism.growth_of(task.machines, task.d, task.budget.rho)
        if rounds is None:
            rounds = last_iterate_mechanism.most_steps(task.samples, growth) + 1
            if rounds == 1:
                raise InputError(
                    f"snowball-sgd with rho = {task.budget.rho:g} needs a last batch of "
                    f"{math.ceil(growth):,} samples of each machine, which has {task.samples:,}; give "
                    "a larger rho, or more machines or samples"
                )
        if task.most is not None:
            # Each step takes a sample at least, and it takes memory to say how many more.
            check_rounds(task.most, task.machines, rounds, rounds - 1)
        last_iterate_mechanism.check_steps(rounds)
        batches = [*last_iterate_mechanism.growing_batches(rounds - 1, growth).tolist(), 0]
        return Batches.until(tuple(accumulate(batches)))

    def clip_norm(self, task: Task) -> float:
        """Return a norm that rounded gradients keep to without being clipped."""
        # Only an audit gives one: its clipped gradients are the same everywhere, and steps still contract.
        if task.clip_norm is not None:
            return task.clip_norm
        return max(task.G * LOOSENESS, _longer(task).G * (1 + 2.0**-12))

    def release(self, task: Task, sampling: Sampling, present: int | None = None) -> Release:
        """Return what is to be hidden; its gradient norm covers features above their bound."""
        # The mechanism itself adds this share, which is enough for losses that grow slowly.
        longest = max(task.G, _longer(task).G / (1 + last_iterate_mechanism.ABOVE))
        return replace(super().release(task, sampling, present), gradient_norm=longest, is_hidden=True)

    def largest_rate(self, task: Task, sampling: Sampling) -> float:
        """Return about 2 / L, up to which steps contract, also of features above their bound."""
        smoothness = _longer(task).L + task.l2
        return min(2 * (1 - 2.0**-18) / task.smoothness, 2 * (1 - 2.0**-20) / smoothness)

    def base_rate(self, task: Task, sampling: Sampling, mechanism: Mechanism) -> float:
        """Return D / (G' sqrt(N)) with E ||g||^2 <= G'^2, noise included, but at most about 2 / L.

        Jain, Nagaraj and Netrapalli, "Making the last iterate of SGD information theoretically optimal",
        2019.
        """
        noise = mechanism.sigma / task.machines
        error = math.hypot(mechanism.clip_norm, math.sqrt(task.d) * noise)
        return min(
            task.diameter / (error * math.sqrt(sampling.rounds - 1)), self.largest_rate(task, sampling)
        )

    def constants(self, task: Task, sampling: Sampling) -> RunConstants:
        """Return the constants of a run, of which rounding errors and the last grid are checked."""
        constants = super().constants(task, sampling)
        if constants.mechanism.is_noisy:
            check_landing(constants)
        return constants

    def step_size(self, eta: float, rounds: int, t: int) -> float:
        """Return a rate that is halved again and again: the last iterate has to be good by itself."""
        return eta * float(last_iterate_mechanism.halving_steps(rounds - 1)[t - 1])

    def step(self, iterates: "Iterates", t: int, total: "Integers", scale: float) -> None:
        """Step, and make the last a function of the noised sum on a grid, as if w_t were a multiple of it."""
        if iterates.l2:
            iterates.regularise(t)
        if t == iterates.constants.rounds - 1 and iterates.constants.mechanism.is_noisy:
            scale *= last_iterate_mechanism.LANDING
            total = total // last_iterate_mechanism.LANDING - np.rint(iterates.w / scale).astype(np.int64)
            iterates.w.fill(0.0)
        iterates.descend(t, total, scale)


# Exact steps take two iterates no farther apart, and that is what protects a sample that earlier steps used.
# Computed ones may, by what is bounded here; docs/background/methods.md has the derivation.


def _longer(task: Task) -> "Constants":
    """Return G and L of samples whose features exceed their bound by what sources accept."""
    return task.problem.constants(task.square * (1 + FEATURE_SLACK) ** 2, task.radius, task.classes)


def gradient_error(features: int, radius: float, G: float, L: float, roundings: float) -> float:
    """Return how far a gradient is from exact: roundings of margins, and so many relative to G."""
    return _ROUNDING * (features * radius * L + roundings * G)


def iterate_error(d: int, radius: float, move: "NDArray[np.float64]") -> "NDArray[np.float64]":
    """Return how far steps of these norms, projected on the ball, are from exact ones: norms."""
    from mu2mpi.losses.model.ball import BLOCK

    summed = min(BLOCK, d) + math.ceil(d / BLOCK)
    return _ROUNDING * (radius * (summed / 2 + 6) + 3 * move)


def arithmetic_slack(constants: RunConstants) -> "NDArray[np.float64]":
    """Return how much farther apart than exact steps computed ones may take two iterates: shape (T - 1,).

    Both of the two are wrong. What happens after the noise of a step counts in the next one; before the last,
    the iterate is divided by the spacing of a grid, too. InputError if that is not known of the loss.
    """
    d, radius = constants.task.d, constants.task.radius
    rates = constants.eta * last_iterate_mechanism.halving_steps(constants.rounds - 1)
    noise = constants.mechanism.sigma / constants.task.machines
    longer = _longer(constants.task)
    if longer.roundings is None:
        raise InputError(
            f"it is not known how exactly gradients of loss = {constants.task.problem.name} are computed, "
            "and steps whose iterates are hidden need that; choose another method or loss"
        )
    of_gradients = gradient_error(constants.task.features, radius, longer.G, longer.L, longer.roundings)
    move = rates * (constants.task.G + MAX_NORMAL * noise * math.sqrt(d))
    # The regulariser's part of a step takes a product with the iterate and a difference.
    of_iterates = iterate_error(d, radius, move) + (3 * _ROUNDING * radius if constants.task.l2 else 0.0)
    before = np.append(0.0, of_iterates[:-1])
    before[-1] += _ROUNDING * radius
    slack: NDArray[np.float64] = 2 * (rates * of_gradients + before)
    return slack


def check_landing(constants: RunConstants) -> None:
    """Make sure that the last grid holds iterates in 62 bits, and their share of rho all rounding errors."""
    T, diameter, rho = constants.rounds, constants.task.diameter, constants.task.budget.rho
    last = constants.step_size(T - 1) / (constants.task.machines * constants.sampling.size(T - 1))
    if (
        constants.task.radius
        > 2.0**62 * last_iterate_mechanism.LANDING * constants.mechanism.resolution * last
    ):
        raise InputError(
            f"the last of {T} rounds has too little noise beside diameter = {diameter:g} for integers of 64 "
            "bits; give fewer rounds or a smaller diameter"
        )
    noise = constants.mechanism.sigma / constants.task.machines
    deviations = constants.eta * last_iterate_mechanism.halving_steps(T - 1) * noise
    cost = last_iterate_mechanism.last_iterate_rho(
        np.zeros(len(deviations)), deviations, arithmetic_slack(constants)
    ).max()
    if not cost <= rho * last_iterate_mechanism.ARITHMETIC / (1 + last_iterate_mechanism.ARITHMETIC):
        raise InputError(
            f"rounding errors of floating-point numbers could be seen beside the noise: {T} rounds with "
            f"diameter = {diameter:g}, rho = {rho:g} and a first step of {constants.eta:g}; give fewer "
            "rounds, a smaller diameter, or a larger rho or eta_scale"
        )
