"""How Snowball SGD grows its batches, so that the noise of the steps to come hides every sample as well.

An early sample is hidden by all later noise and a late one by little, so late samples share their step with
more others. No step has more noise than its gradients may have by themselves, C / sqrt(d) in each coordinate
of their average: that settles how large batches need to be. What noise they then need is the least that keeps
to rho.

References
----------
Feldman, Koren and Talwar, "Private stochastic convex optimization: optimal rates in linear time", 2020.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mu2mpi.errors import InputError
from mu2mpi.privacy.grid import choose_resolution, clipping_bound
from mu2mpi.privacy.iteration import LANDING, growing_batches, halving_steps, hidden_rho

__all__ = ["Hidden", "growth_of", "hidden_release", "largest_landing", "most_steps"]

LOOSENESS = 1 + 2.0**-10
"""By what the norm C that noise is scaled to exceeds G: rounded gradients keep to it without being clipped.

A clipped gradient may be no gradient of a convex function, and its step no contraction.
"""

ABOVE = 2.0**-18
"""By what share gradients may pass G: features may pass 1 by a little less than that."""

MOST_STEPS = 2**22
"""Beyond, to list the batches of all steps would take gigabytes."""

BITS = 40
"""Bits between the resolution and the noise: what rounding takes apart grows with M sqrt(d T)."""


class Hidden(NamedTuple):
    """What protects the last iterate where those before it are hidden.

    Attributes
    ----------
    clip_norm : float
        C, which no gradient passes.
    growth : float
        What `growing_batches` takes.
    sigma : float
        Standard deviation of the noise for the sum over machines, with a sample each; as many times larger
        for a batch.
    resolution : float
        Spacing of the grid.
    """

    clip_norm: float
    growth: float
    sigma: float
    resolution: float


def growth_of(machines: int, d: int, rho: float) -> float:
    """Return how large batches have to grow: 2 sqrt(d) / (M rho), of one machine in the last step.

    A sample moves the step by 2 C eta_t / (M B_t), and the noise from there on has the standard deviation
    (C / sqrt(d)) sqrt(sum of eta_s^2 over s >= t): their ratio may be rho.
    """
    return 2 * math.sqrt(d) / (machines * rho)


def most_steps(samples: int, growth: float) -> int:
    """Return for how many steps the samples of each machine suffice, up to `MOST_STEPS`; 0 if for none."""
    enough, too_many = 0, min(samples, MOST_STEPS) + 1
    while too_many - enough > 1:
        steps = (enough + too_many) // 2
        if growing_batches(steps, growth).sum() <= samples:
            enough = steps
        else:
            too_many = steps
    return enough


def hidden_release(
    rounds: int, machines: int, d: int, rho: float, G: float, clip_norm: float | None = None
) -> Hidden:
    """Return the least noise with which the last iterate is private, and all that it depends on.

    Parameters
    ----------
    rounds, machines, d : int
        T, of which the last shows the last iterate and takes no step, M, and the number of coordinates.
    rho : float
        Privacy of the last iterate; infinite for no noise.
    G : float
        Norm that no gradient passes.
    clip_norm : float, optional
        Norm to which gradients are clipped all the same, by whoever knows that steps contract nevertheless.

    Raises
    ------
    InputError
        If there is no step, or no grid is fine enough.
    """
    if rounds < 2:
        raise InputError("method = snowball-sgd needs at least 2 rounds: the last shows what the others made")
    if rounds - 1 > MOST_STEPS:
        raise InputError(
            f"rounds = {rounds} are too many: method = snowball-sgd accounts for at most {MOST_STEPS + 1}, "
            "as each has a batch of its own size; give fewer --rounds"
        )
    C = G * LOOSENESS if clip_norm is None else clip_norm
    growth = growth_of(machines, d, rho)
    batches = growing_batches(rounds - 1, growth)
    most = int(batches.max())

    def noise_with(resolution: float) -> float:
        if math.isinf(rho):
            return 0.0
        return float(hidden_rho(batches, machines, C, 1.0, resolution, d).max()) / rho

    # What rounding costs follows from the grid, and the grid from about how much noise there is.
    about = machines * most * noise_with(0.0)
    resolution = choose_resolution(C, G, about, d, machines, most, noisy_bits=BITS)
    if clip_norm is None and clipping_bound(C, resolution, d) < G * (1 + ABOVE):
        raise InputError("the grid of messages is too coarse for so many machines; use fewer")
    return Hidden(C, growth, machines * noise_with(resolution), resolution)


def largest_landing(eta: float, batches: NDArray[np.int64], machines: int, resolution: float) -> float:
    """Return how far from 0 an iterate may lie so that the grid of the last step holds it in 62 bits."""
    last = eta * float(halving_steps(len(batches))[-1]) / (machines * int(batches[-1]))
    return 2.0**62 * LANDING * resolution * last
