"""Noise multiplier by privacy loss distributions (PLDs), which dp-accounting computes.

Privacy losses are discretised pessimistically: Koskela, Jälkö and Honkela, "Computing tight differential
privacy guarantees using FFT", 2020, and Doroshenko et al., "Connect the dots: tighter discrete approximations
of privacy loss distributions", 2022. The noise multiplier is sigma / C for clipping norm C; under replace-one
adjacency the sensitivity is 2 C.
"""

import math
from collections.abc import Callable
from typing import Any

from mu2mpi.core.errors import InputError

_TOLERANCE = 1e-4  # relative excess of the returned noise multiplier over the smallest sufficient one
_SIGNIFICANT_DIGITS = (
    6  # significant digits of the noise multiplier, in which all processors and libraries agree
)
_MIN_DELTA = 1e-12  # below it, dp-accounting's truncation and rounding errors are no longer negligible
MIN_MULTIPLIER = 2.0**-4  # with less noise the PLD has too many support points, and hardly any privacy
MAX_MULTIPLIER = 2.0**100  # the square of a larger one overflows
MAX_PLD_ROUNDS = 10**6  # rounds composed; more would take gigabytes


def import_pld() -> Any:
    """Import `dp_accounting.pld`; InputError if dp-accounting is not installed."""
    try:
        import dp_accounting.pld as pld
    except ImportError:
        raise InputError(
            "Accounting for subsampling needs dp-accounting, which is not installed. "
            "Install it with: pip install 'mu2mpi[accounting]'"
        ) from None
    return pld


def discretization_interval(rounds: int) -> float:
    """Spacing of the discretised privacy losses: T times its square is about what it adds to epsilon."""
    return min(1e-3, 0.02 / math.sqrt(rounds))


def min_noise_multiplier(
    epsilon_at: Callable[[float, float], float],
    epsilon: float,
    delta: float,
    reserve: float,
    initial: float = 1.0,
) -> float:
    """Smallest noise multiplier that is (epsilon, delta)-DP, up to a relative excess of 10^-4.

    `epsilon_at` maps (noise multiplier, delta) to epsilon, faster for more noise; the search starts at
    `initial`. A share `reserve` of epsilon and delta is left unspent. InputError if delta is too small for a
    PLD. The result is that of a bisection from powers of two: its last bracket determines all of its answers,
    as epsilon falls with the noise, and interpolation finds that bracket in a few evaluations.
    """
    if delta < _MIN_DELTA:
        raise InputError(
            f"--delta must be at least {_MIN_DELTA:g} to account for subsampling, got {delta:g}."
        )
    unreserved, first = 1 - reserve, 2.0 ** math.ceil(math.log2(initial))
    bracket = [0.0, math.inf]  # largest evaluated multiplier that is too small, smallest that suffices
    points: list[tuple[float, float]] = []  # log(epsilon / target), log(multiplier)

    def suffices(multiplier: float) -> bool:
        spent = epsilon_at(multiplier, unreserved * delta)
        if 0 < spent < math.inf and epsilon > 0:
            points.append((math.log(spent / (unreserved * epsilon)), math.log(multiplier)))
        return spent <= unreserved * epsilon

    estimate = first
    while True:
        threshold = max(math.nextafter(bracket[0], math.inf), min(estimate, bracket[1]))
        low, high = _bisect(first, threshold.__le__)
        if not bracket[0] < (tried := high if high < bracket[1] else low) < bracket[1]:
            break
        bracket[suffices(tried)] = tried
        estimate = _interpolate(points, *bracket)
    multiplier = _round_up(high)
    # Discretisation makes epsilon a non-smooth function of the noise: slightly more noise can do worse.
    while not suffices(multiplier):
        multiplier = _round_up(multiplier * (1 + _TOLERANCE))
    return multiplier


def _bisect(first: float, suffices: Callable[[float], bool]) -> tuple[float, float]:
    """Bracket the smallest sufficient multiplier by bisection: one that is too small, one that suffices."""
    high = first
    while not suffices(high):
        high *= 2
    while high > MIN_MULTIPLIER and suffices(high / 2):
        high /= 2
    low = high / 2 if high > MIN_MULTIPLIER else high
    while high > low * (1 + _TOLERANCE):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return low, high


def _interpolate(points: list[tuple[float, float]], low: float, high: float) -> float:
    """Estimate the smallest sufficient multiplier in (low, high) by inverse quadratic interpolation."""
    nearest = sorted(set(points), key=lambda point: abs(point[0]))[:3]
    if len(nearest) == 1:
        # Epsilon falls like 1 / multiplier for much noise, and faster for little.
        log = nearest[0][1] + nearest[0][0] / (1 if nearest[0][0] > 0 else 4)
    else:
        log = math.fsum(x * math.prod(y / (y - own) for y, _ in nearest if y != own) for own, x in nearest)
    if len(points) < 12 and math.log(low or math.ulp(0.0)) < log < math.log(high):
        return math.exp(log)
    return 2 * low if math.isinf(high) else high / 2 if low == 0 else math.sqrt(low * high)


def _round_up(value: float) -> float:
    """Round up to `_DIGITS` significant digits."""
    unit = 10.0 ** (math.floor(math.log10(value)) + 1 - _SIGNIFICANT_DIGITS)
    return math.ceil(value / unit) * unit
