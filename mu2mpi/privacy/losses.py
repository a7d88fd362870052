"""Noise from the distribution of the privacy loss of many rounds, which dp-accounting computes.

Losses are rounded such that nothing looks more private than it is: Koskela, Jälkö and Honkela, "Computing
tight differential privacy guarantees using FFT", 2020, and Doroshenko et al., "Connect the dots: tighter
discrete approximations of privacy loss distributions", 2022.
"""

import math
from collections.abc import Callable
from typing import Any

from mu2mpi.errors import InputError

COARSEST, FINENESS = 1e-3, 0.02
"""Privacy losses are rounded to multiples of the one, or of the other over sqrt(T) if that is less. What T
rounds add to epsilon grows with T times the square of that."""

ENOUGH, DIGITS = 1e-4, 6
"""How much more noise is added at most, as a share, than losses that are so rounded need; and to how many
digits noise is rounded up: fewer than those in which processors and libraries differ."""

LEAST_DELTA, LEAST = 1e-12, 2.0**-4
"""Below this delta, what dp-accounting cuts off and its rounding errors count beside it. With less noise, in
units of C, losses would be too many to be listed, and hardly anything private."""

LARGEST = 2.0**100
"""Of it: with more, squares leave the range of floating-point numbers."""

MOST_ROUNDS = 10**6
"""With noise: to account for more would take gigabytes."""


def losses_library() -> Any:
    """Return dp-accounting's package of distributions of the loss; InputError if it is not installed."""
    try:
        import dp_accounting.pld as pld
    except ImportError:
        raise InputError(
            "the noise for samples drawn at random is computed by dp-accounting, which is not installed: "
            "pip install 'mu2mpi[accounting]'"
        ) from None
    return pld


def interval(rounds: int) -> float:
    """Return to multiples of what losses are rounded."""
    return min(COARSEST, FINENESS / math.sqrt(rounds))


def least_multiplier(
    epsilon_of: Callable[[float, float], float],
    epsilon: float,
    delta: float,
    reserve: float,
    start: float = 1.0,
) -> float:
    """Return noise in units of C that keeps to epsilon at delta, where a share of 10^-4 less is too little.

    `epsilon_of` takes noise and a delta, and is faster for more noise, with which to `start`. A share of
    epsilon and delta may be left as a reserve. With small epsilon and many rounds, the rounding of losses
    alone asks for some percent of it or more. Raises InputError if delta is too small.
    """
    if delta < LEAST_DELTA:
        raise InputError(
            f"delta = {delta:g} is too small for the distribution of the privacy loss to be computed; give "
            f"at least delta = {LEAST_DELTA:g}"
        )
    left = 1 - reserve

    def suffices(multiplier: float) -> bool:
        return epsilon_of(multiplier, left * delta) <= left * epsilon

    high = 2.0 ** math.ceil(math.log2(start))
    while not suffices(high):
        high *= 2
    while high > LEAST and suffices(high / 2):
        high /= 2
    low = high / 2 if high > LEAST else high
    while high > low * (1 + ENOUGH):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if suffices(middle) else (middle, high)
    multiplier = _rounded_up(high)
    # What rounding of losses costs is no smooth function of the noise: a little more can do a little worse.
    while not suffices(multiplier):
        multiplier = _rounded_up(multiplier * (1 + ENOUGH))
    return multiplier


def _rounded_up(value: float) -> float:
    """Return a number of few digits that is no smaller."""
    unit = 10.0 ** (math.floor(math.log10(value)) + 1 - DIGITS)
    return math.ceil(value / unit) * unit


def out_of_range(sigma: float, C: float) -> list[str]:
    """Say if the losses of such noise cannot be listed; empty if they can be."""
    if sigma == 0 or LEAST * C <= sigma <= LARGEST * C:
        return []
    return [f"no epsilon is computed for sigma = {sigma!r} beside clip_norm = {C!r}"]
