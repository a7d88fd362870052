"""Smallest noise multiplier within a privacy budget, by dp-accounting's privacy loss distributions (PLDs).

Privacy losses are discretised pessimistically: Koskela, Jälkö and Honkela, "Computing tight differential
privacy guarantees using FFT", 2020, and Doroshenko et al., "Connect the dots: tighter discrete approximations
of privacy loss distributions", 2022. The noise multiplier is sigma / C for clipping norm C, whatever the
neighbouring relation.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from mu2mpi.core.arrays import FloatArray
from mu2mpi.core.errors import InputError, import_extra
from mu2mpi.core.lazy import np

_LOG2_STEP = 2.0**-13  # between the binary logarithms of the multipliers that are searched
_MAX_COARSENESS = 8  # of the privacy losses in the search: multiple of their spacing
_COARSE_TOLERANCE = 2.0**-7  # log2 of epsilon / target at which the search goes on with the finest losses
_NOISE_MULTIPLIER_RTOL = 1e-4  # relative excess of the returned multiplier over the smallest sufficient one
_NOISE_MULTIPLIER_DIGITS = 6  # of the noise multiplier, in which all processors and libraries agree
_MAX_EPSILON = 1000.0  # above it there is hardly any privacy, and PLDs take minutes
_MIN_DELTA = 1e-12  # below it, dp-accounting's truncation and rounding errors are no longer negligible
_MIN_PROBABILITY = 1e-300  # below it quotients overflow
MIN_NOISE_MULTIPLIER = 2.0**-4  # with less noise the PLD has too many support points, and hardly any privacy
MAX_NOISE_MULTIPLIER = 2.0**100  # the square of a larger one overflows
MAX_PLD_ROUNDS = 10**6  # rounds composed; more would take gigabytes


def import_pld() -> Any:
    """Import the module `dp_accounting.pld`; MissingPackageError if dp-accounting is not installed."""
    return import_extra("dp_accounting.pld", "accounting")


def discretization_interval(rounds: int, coarseness: int = 1) -> float:
    """Spacing of the discretised privacy losses of a PLD; adds about rounds * spacing^2 to epsilon."""
    return coarseness * min(1e-3, 0.02 / math.sqrt(rounds))


@lru_cache(maxsize=2)
def _delta_curves(losses: Any) -> list[tuple[FloatArray, FloatArray, FloatArray]]:
    """Delta at each loss l >= 0, largest first, and sums so far of probabilities p and of p exp(-l)."""
    curves = []
    for pmf in {losses._pmf_remove.to_dense_pmf(), losses._pmf_add.to_dense_pmf()}:
        first = max(0, -pmf._lower_loss)
        values = pmf._discretization * (pmf._lower_loss + np.arange(first, pmf.size)[::-1])
        p = pmf._probs[first:][::-1]
        upper, lower = pmf._infinity_mass + np.cumsum(p), np.cumsum(p * np.exp(-values))
        with np.errstate(over="ignore", invalid="ignore"):
            curves.append((upper - np.exp(values) * lower, upper, lower))
    return curves


def epsilon_at_delta(losses: Any, delta: float) -> float:
    """Epsilon of a PLD at `delta`: `losses.get_epsilon_for_delta`, in arrays in place of its loop."""
    epsilon = 0.0
    for deltas, upper, lower in _delta_curves(losses):
        below = int(np.argmax(np.append(deltas > delta, True)))  # index of the largest loss below epsilon
        if below == 0 or lower[below - 1] < _MIN_PROBABILITY:
            return math.inf
        if upper[below - 1] > lower[below - 1] + delta:
            epsilon = max(epsilon, math.log((upper[below - 1] - delta) / lower[below - 1]))
    return epsilon


@lru_cache(maxsize=32)
def min_noise_multiplier(
    compose_pld: Callable[[str, float, int, float, int, int], Any],
    samples: int,
    batch_size: float,
    rounds: int,
    epsilon: float,
    delta: float,
    reserved_share: float = 0.0,
    neighbours: str = "replace",
) -> float:
    """Smallest noise multiplier sigma / C that is (epsilon, delta)-DP, up to a relative excess of 10^-4.

    `compose_pld` returns the PLD of a neighbouring relation, multiplier, samples, batch size, rounds and
    coarseness, faster for more noise. A `reserved_share` of epsilon and delta is left unspent. InputError if
    they are too small. Coarse PLDs only find the neighbourhood of the result, and the path of the search does
    not affect it.
    """
    if rounds > MAX_PLD_ROUNDS:
        raise InputError(
            f"--rounds must be at most {MAX_PLD_ROUNDS} for accounting by privacy loss distributions, got "
            f"{rounds}."
        )
    if epsilon > _MAX_EPSILON:
        limit = f"--epsilon must be at most {_MAX_EPSILON:g} to account for subsampling, got {epsilon:g}"
        raise InputError(f"{limit}. Use a smaller --epsilon or --rho, or inf for no noise.")
    if delta < _MIN_DELTA:
        raise InputError(
            f"--delta must be at least {_MIN_DELTA:g} to account for subsampling, got {delta:g}."
        )
    unreserved = 1 - reserved_share
    # Coarse losses add less than 2 % to epsilon.
    coarseness = max(1, min(_MAX_COARSENESS, math.isqrt(int(32 * epsilon))))
    # An epsilon near the spacing falls in steps, which allow no prediction: one search, until the end.
    tolerance = _COARSE_TOLERANCE if coarseness > 1 else 0.0
    points: list[tuple[float, float]] = []  # log2 of epsilon / target, log2 of the multiplier
    last = math.nan, math.inf  # of the last account of the finest losses
    root, slope = math.nan, -0.5  # estimated log2 of the result, and its change by that of epsilon

    def log_excess(multiplier: float, coarseness: int = 1) -> float:
        """Log2 of epsilon / target, or infinite; at most 0 if and only if the multiplier suffices."""
        losses = compose_pld(neighbours, multiplier, samples, batch_size, rounds, coarseness)
        spent_epsilon, target = epsilon_at_delta(losses, unreserved * delta), unreserved * epsilon
        sign = 1 if spent_epsilon > target else -1
        is_finite = 0 < spent_epsilon < math.inf and target > 0
        return sign * (abs(math.log2(spent_epsilon / target)) or math.ulp(0.0) if is_finite else math.inf)

    def search(suffices: Callable[[float], bool], estimate: float, is_final: bool) -> tuple[float, float]:
        """Log2 of the smallest sufficient multiplier on a grid, and its estimate where a search stopped."""
        low, high, lowest = -math.inf, math.inf, math.log2(MIN_NOISE_MULTIPLIER)  # too small, sufficient
        while high > max(low + _LOG2_STEP, lowest):
            on_grid = math.ceil(estimate / _LOG2_STEP) * _LOG2_STEP
            log = max(lowest, low + _LOG2_STEP, min(on_grid, high - _LOG2_STEP))
            if 2.0 ** min(log, 1000.0) > MAX_NOISE_MULTIPLIER:
                raise InputError(
                    f"--epsilon {epsilon:g} is too small to account for subsampling. Use a larger one."
                )
            low, high = (low, log) if suffices(log) else (log, high)
            is_local = is_final and math.isfinite(last[1])
            estimate = root if is_local else _interpolate_log([] if is_final else points, low, high)
            if not is_final and len(points) > 1 and abs(points[-1][0]) < tolerance:
                break
        return high, estimate

    def suffices_coarsely(log: float) -> bool:
        if math.isfinite(excess := log_excess(2.0**log, coarseness)):
            points.append((excess, log))
        return excess <= 0

    def suffices(log: float) -> bool:
        """Whether a multiplier suffices, predicted from the last finest account where it leaves no doubt."""
        nonlocal root, slope, last
        excess = math.nan
        for multiplier in (_round_up_digits(2.0**log), 2.0**log):  # The first may be the result.
            # The estimate is the less precise, the farther it is from the last account.
            if abs(log - root) > _LOG2_STEP / 20 + abs(root - last[1]) / 4:
                return log > root
            excess, current = log_excess(multiplier), math.log2(multiplier)
            if math.isfinite(excess):
                if 4 * _LOG2_STEP < abs(current - last[1]) < math.inf:
                    slope = (current - last[1]) / (excess - last[0])
                root, last = current - slope * excess, (excess, current)
        return excess <= 0

    # Close to the result for large batches, where a multiplier that is too small takes long
    initial = 4 * batch_size / samples * math.sqrt(rounds) / epsilon if epsilon else 1.0
    initial_log = math.log2(min(max(1.0, initial), MAX_NOISE_MULTIPLIER))
    high, root = search(suffices_coarsely, initial_log, is_final=False)
    if coarseness > 1 and points:
        near = sorted(set(points), key=lambda point: abs(point[0]))[:2]
        slope = (near[0][1] - near[1][1]) / (near[0][0] - near[1][0]) if near[1:] else slope
        # The error is proportional to the square of the spacing, as in Richardson's extrapolation.
        excess, log = points[-1]
        added = (log_excess(2.0**log, 2 * coarseness) - excess) * (1 - coarseness**-2) / 3
        root = log - slope * (excess - added)
    if coarseness > 1:
        high, _ = search(suffices, root, is_final=True)
    multiplier = _round_up_digits(2.0**high)
    while log_excess(multiplier) > 0:  # by discretisation, slightly more noise can do worse
        multiplier = _round_up_digits(multiplier * (1 + _NOISE_MULTIPLIER_RTOL))
    return multiplier


def _interpolate_log(points: list[tuple[float, float]], low: float, high: float) -> float:
    """Estimate the log of the smallest sufficient multiplier, between `low` and `high`."""
    nearest = sorted(set(points), key=lambda point: abs(point[0]))[:3]
    if len(nearest) == 1:
        # Epsilon falls like 1 / multiplier for much noise, and faster for little.
        log = nearest[0][1] + nearest[0][0] / (1 if nearest[0][0] > 0 else 4)
    else:
        log = math.fsum(x * math.prod(y / (y - own) for y, _ in nearest if y != own) for own, x in nearest)
    if len(points) < 12 and low < log < high:
        return log
    return low + 1 if math.isinf(high) else max((low + high) / 2, high - 1)


def _round_up_digits(value: float) -> float:
    digit_unit = 10.0 ** (math.floor(math.log10(value)) + 1 - _NOISE_MULTIPLIER_DIGITS)
    return math.ceil(value / digit_unit) * digit_unit
