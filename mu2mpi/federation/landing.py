"""Iterates of which the last alone is seen: its step lands on a grid, and rounding errors are accounted for.

Exact steps take two iterates no farther apart, and that is what protects a sample that earlier steps used.
Computed ones may, by what is bounded here; docs/background/methods.md has the derivation.
"""

import math

import numpy as np
from numpy.typing import NDArray

from mu2mpi.errors import InputError
from mu2mpi.federation.iterates import Iterates
from mu2mpi.federation.schedule import Schedule
from mu2mpi.privacy.grid import MAX_NORMAL
from mu2mpi.privacy.mechanisms.last_iterate import ARITHMETIC, LANDING, halving_steps, last_iterate_rho
from mu2mpi.problem.ball import BLOCK

ROUNDING = 1.01 * 2.0**-53
"""Relative error bound of one operation; the hundredth covers products of errors."""


def gradient_error(features: int, radius: float, G: float, L: float, roundings: float) -> float:
    """Return how far a sample's gradient at a point of the ball is from the exact one: a norm.

    The residual and its product with the sample take so many roundings, each relative to G.
    """
    return ROUNDING * (features * radius * L + roundings * G)


def iterate_error(d: int, radius: float, move: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how far steps of these norms, projected on the ball, are from exact ones: norms."""
    summed = min(BLOCK, d) + math.ceil(d / BLOCK)
    return ROUNDING * (radius * (summed / 2 + 6) + 3 * move)


def arithmetic_slack(schedule: Schedule) -> NDArray[np.float64]:
    """Return how much farther apart than exact steps computed ones may take two iterates: shape (T - 1,).

    Both of the two are wrong. What happens after the noise of a step counts in the next one; before the last,
    the iterate is divided by the spacing of a grid, too. It is an InputError if that is not known of the
    loss.
    """
    d, radius, G = schedule.d, schedule.radius, schedule.G
    rates = schedule.eta * halving_steps(schedule.rounds - 1)
    noise = schedule.mechanism.sigma / schedule.machines
    roundings = schedule.problem.roundings(schedule.classes)
    if roundings is None:
        raise InputError(
            f"it is not known how exactly gradients of loss = {schedule.problem.name} are computed, and "
            "steps whose iterates are hidden need that; choose another method or loss"
        )
    longer = schedule.problem.constants_with_slack(schedule.square, radius, schedule.classes)
    of_gradients = gradient_error(schedule.features, radius, longer.G, longer.L, roundings)
    move = rates * (G + MAX_NORMAL * noise * math.sqrt(d))
    # The regulariser's part of a step takes a product with the iterate and a difference.
    of_iterates = iterate_error(d, radius, move) + (3 * ROUNDING * radius if schedule.l2 else 0.0)
    before = np.append(0.0, of_iterates[:-1])
    before[-1] += ROUNDING * radius
    slack: NDArray[np.float64] = 2 * (rates * of_gradients + before)
    return slack


def check_landing(schedule: Schedule, rho: float) -> None:
    """Make sure that the last grid holds iterates in 62 bits, and their share of rho all rounding errors."""
    T, diameter = schedule.rounds, 2 * schedule.radius
    last = schedule.rate(T - 1) / (schedule.machines * schedule.sampling.size(T - 1))
    if schedule.radius > 2.0**62 * LANDING * schedule.mechanism.resolution * last:
        raise InputError(
            f"the last of {T} rounds has too little noise beside diameter = {diameter:g} for integers of 64 "
            "bits; give fewer rounds or a smaller diameter"
        )
    noise = schedule.mechanism.sigma / schedule.machines
    deviations = schedule.eta * halving_steps(T - 1) * noise
    cost = last_iterate_rho(np.zeros(len(deviations)), deviations, arithmetic_slack(schedule)).max()
    if not cost <= rho * ARITHMETIC / (1 + ARITHMETIC):
        raise InputError(
            f"rounding errors of floating-point numbers could be seen beside the noise: {T} rounds with "
            f"diameter = {diameter:g}, rho = {rho:g} and a first step of {schedule.eta:g}; give fewer "
            "rounds, a smaller diameter, or a larger rho or eta_scale"
        )


class LandingIterates(Iterates):
    """Iterates whose last step is a function of the noised sum on a grid, and of nothing finer."""

    def step(self, t: int, total: NDArray[np.int64]) -> None:
        """Move from round t to round t + 1."""
        if t < self.schedule.rounds - 1 or not self.schedule.mechanism.is_noisy:
            super().step(t, total)
            return
        self.direction = total
        self.regularise(t)
        # What is seen is a function of w_t - step * total alone, were w_t a multiple of the grid.
        step = self.step_size(t) * LANDING
        total = total // LANDING - np.rint(self.w / step).astype(np.int64)
        self.w.fill(0.0)
        self.move(t, total, step)
