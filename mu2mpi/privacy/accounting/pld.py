"""Smallest noise multiplier within a privacy budget, by dp-accounting's privacy loss distributions (PLDs).

Privacy losses are discretised pessimistically: Koskela, Jälkö and Honkela, "Computing tight differential
privacy guarantees using FFT", 2020, and Doroshenko et al., "Connect the dots: tighter discrete approximations
of privacy loss distributions", 2022. The noise multiplier is sigma / C for clipping norm C, whatever the
neighbouring relation.
"""

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from mu2mpi.core.arrays import FloatArray
from mu2mpi.core.errors import InputError, import_extra
from mu2mpi.core.lazy import np

_LOG2_STEP = 2.0**-13  # between the binary logarithms of the multipliers that are searched
_MAX_COARSENESS = 8  # of the privacy losses in the search: multiple of their spacing
_COARSE_LOG2_STEP = 2.0**-6  # the same in the search with coarse losses
_MAX_SECANTS = 12  # of a search, which then bisects
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
    they are too small. Coarse PLDs only find where the search begins, which does not affect the result.
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

    def log_excess(multiplier: float, coarseness: int = 1) -> float:
        """Log2 of epsilon / target, or infinite; at most 0 if and only if the multiplier suffices."""
        losses = compose_pld(neighbours, multiplier, samples, batch_size, rounds, coarseness)
        spent_epsilon, target = epsilon_at_delta(losses, unreserved * delta), unreserved * epsilon
        is_finite = 0 < spent_epsilon < math.inf and target > 0
        size = (abs(math.log2(spent_epsilon / target)) or math.ulp(0.0)) if is_finite else math.inf
        return size if spent_epsilon > target else -size

    # Close to the result for large batches, where a multiplier that is too small takes long
    initial = 4 * batch_size / samples * math.sqrt(rounds) / epsilon if epsilon else 1.0
    estimate, slope = math.log2(min(max(1.0, initial), MAX_NOISE_MULTIPLIER)), -0.5
    # Coarse losses add less than 2 % to epsilon. An epsilon near their spacing falls in steps.
    coarseness = max(1, min(_MAX_COARSENESS, math.isqrt(int(32 * epsilon))))
    if coarseness > 1:
        coarse_excess = partial(log_excess, coarseness=coarseness)
        _, estimate, slope = _smallest_sufficient(coarse_excess, _COARSE_LOG2_STEP, estimate, slope, True)
    log, *_ = _smallest_sufficient(log_excess, _LOG2_STEP, estimate, slope, coarseness > 1)
    if math.isinf(log):
        raise InputError(f"--epsilon {epsilon:g} is too small to account for subsampling. Use a larger one.")
    multiplier = _round_up_digits(2.0**log)
    while log_excess(multiplier) > 0:  # by discretisation, slightly more noise can do worse
        multiplier = _round_up_digits(multiplier * (1 + _NOISE_MULTIPLIER_RTOL))
    return multiplier


def _smallest_sufficient(
    log_excess: Callable[[float], float], step: float, estimate: float, slope: float, is_smooth: bool
) -> tuple[float, float, float]:
    """Smallest multiple of `step` whose power of 2 is a sufficient multiplier, by secants in a bracket.

    `estimate` is where the search begins, and `slope` the change of the multiplier's log by that of epsilon;
    returned are also both at its end. If epsilon `is_smooth`, answers that the last account leaves no doubt
    about are not computed. Infinite if no multiplier suffices.
    """
    lowest, highest = math.log2(MIN_NOISE_MULTIPLIER), math.log2(MAX_NOISE_MULTIPLIER)
    low, high, last, accounts = lowest - step, math.inf, (math.nan, math.nan), 0
    while high - low > step and low < highest:
        log = max(low + step, min(math.ceil(estimate / step) * step, high - step, highest))
        for multiplier in (_round_up_digits(2.0**log), 2.0**log):  # The first may be the result.
            # The estimate is the less precise, the farther it is from the last account.
            if is_smooth and abs(log - estimate) > step / 20 + abs(estimate - last[0]) / 4:
                excess = estimate - log
                break
            excess, point, accounts = log_excess(multiplier), math.log2(multiplier), accounts + 1
            if math.isfinite(excess):
                if abs(point - last[0]) > 4 * step and excess != last[1]:
                    slope = (point - last[0]) / (excess - last[1])
                estimate, last = point - slope * excess, (point, excess)
        low, high = (low, log) if excess <= 0 else (log, high)
        if not (low < estimate < high and accounts < _MAX_SECANTS):
            estimate = low + 1 if math.isinf(high) else max((low + high) / 2, high - 1)
            last = math.nan, math.nan
    return high, estimate, slope


def _round_up_digits(value: float) -> float:
    digit_unit = 10.0 ** (math.floor(math.log10(value)) + 1 - _NOISE_MULTIPLIER_DIGITS)
    return math.ceil(value / digit_unit) * digit_unit
