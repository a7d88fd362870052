"""Noise from the distribution of the privacy loss of many rounds, which dp-accounting computes.

Losses are rounded such that nothing looks more private than it is: Koskela, Jälkö and Honkela, "Computing
tight differential privacy guarantees using FFT", 2020, and Doroshenko et al., "Connect the dots: tighter
discrete approximations of privacy loss distributions", 2022.
"""

import math
from collections.abc import Callable
from typing import Any

from mu2mpi.core.errors import InputError

# How much more noise is added at most, as a share, than losses that are so rounded need; and to how many
# digits noise is rounded up: fewer than those in which processors and libraries differ
_ENOUGH, _DIGITS = 1e-4, 6
# Below this delta, what dp-accounting cuts off and its rounding errors count beside it. With less noise,
# in units of C, losses would be too many to be listed, and hardly anything private.
_LEAST_DELTA, LEAST = 1e-12, 2.0**-4
MAX_MULTIPLIER = 2.0**100  # of noise in units of C: squares of more are no floating-point numbers
MOST_ROUNDS = 10**6  # with noise: to account for more would take gigabytes


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
    """Return to multiples of what losses are rounded: it adds T times its square to epsilon, about."""
    return min(1e-3, 0.02 / math.sqrt(rounds))


def least_multiplier(
    epsilon_of: Callable[[float, float], float],
    epsilon: float,
    delta: float,
    reserve: float,
    start: float = 1.0,
) -> float:
    """Return noise in units of C that keeps to epsilon at delta, where a share of 10^-4 less is too little.

    `epsilon_of` takes noise and a delta, and is faster for more noise, with which to `start`. A share of both
    may be left as a reserve. InputError if delta is too small. The noise is that of a bisection from powers
    of two. As epsilon falls with the noise, its answers follow from two: its last interval begins with too
    little noise, and ends with enough. Interpolation finds that interval in a few evaluations.
    """
    if delta < _LEAST_DELTA:
        raise InputError(
            f"delta = {delta:g} is too small for the distribution of the privacy loss to be computed; give "
            f"at least delta = {_LEAST_DELTA:g}"
        )
    left, first = 1 - reserve, 2.0 ** math.ceil(math.log2(start))
    known = [0.0, math.inf]  # noise of which one evaluation showed that it is too little, or suffices
    points: list[tuple[float, float]] = []  # logarithms of epsilon, in units of the one asked for, and noise

    def suffices(multiplier: float) -> bool:
        found = epsilon_of(multiplier, left * delta)
        if 0 < found < math.inf and epsilon > 0:
            points.append((math.log(found / (left * epsilon)), math.log(multiplier)))
        return found <= left * epsilon

    root = first
    while True:
        least = max(math.nextafter(known[0], math.inf), min(root, known[1]))
        low, high = _bracket(first, least.__le__)
        if not known[0] < (tried := high if high < known[1] else low) < known[1]:
            break
        known[suffices(tried)] = tried
        root = _estimate(points, *known)
    multiplier = _rounded_up(high)
    # What rounding of losses costs is no smooth function of the noise: a little more can do a little worse.
    while not suffices(multiplier):
        multiplier = _rounded_up(multiplier * (1 + _ENOUGH))
    return multiplier


def _bracket(first: float, suffices: Callable[[float], bool]) -> tuple[float, float]:
    """Return by bisection noise that is too little, if any is, and noise that suffices."""
    high = first
    while not suffices(high):
        high *= 2
    while high > LEAST and suffices(high / 2):
        high /= 2
    low = high / 2 if high > LEAST else high
    while high > low * (1 + _ENOUGH):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return low, high


def _estimate(points: list[tuple[float, float]], low: float, high: float) -> float:
    """Return noise between two bounds that is about enough, by inverse quadratic interpolation."""
    near = sorted(set(points), key=lambda point: abs(point[0]))[:3]
    if len(near) == 1:
        # Epsilon falls like 1 / noise where there is much, and faster where there is little.
        log = near[0][1] + near[0][0] / (1 if near[0][0] > 0 else 4)
    else:
        log = math.fsum(x * math.prod(y / (y - own) for y, _ in near if y != own) for own, x in near)
    if len(points) < 12 and math.log(low or math.ulp(0.0)) < log < math.log(high):
        return math.exp(log)
    return 2 * low if math.isinf(high) else high / 2 if low == 0 else math.sqrt(low * high)


def _rounded_up(value: float) -> float:
    """Return a number of few digits that is no smaller."""
    unit = 10.0 ** (math.floor(math.log10(value)) + 1 - _DIGITS)
    return math.ceil(value / unit) * unit
