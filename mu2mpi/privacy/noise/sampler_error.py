"""Error of the noise sampler against exact rounded normals, and what it adds to epsilon.

Let P be the probability of a grid cell for an exact pair of rounded normals, and Q that for a sampled pair.
docs/background/sampler.md bounds |Q / P - 1| <= tau. Over n pairs, log Q / P adds up to more than xi only
with a probability that Bernstein's inequality bounds (Boucheron, Lugosi and Massart, "Concentration
inequalities", 2013: Theorem 2.10). Epsilon grows by 2 xi.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

# A coordinate of a pair at radius r is computed, scaled and rounded with an error of at most ERROR r, in
# standard deviations. In units of 2^-53: 5.6 for the radius before its root is rounded, 1 for that, 1.5 for u
# (53 bits), 3.2 for sine and cosine, 1 for each of two products, 0.4 for the angle (53 bits); and a margin.
ERROR = 16 * 2.0**-53
MIN_STD_UNITS = 2.0**12  # smallest noise std, in grid units, that the bound covers
# Draws with a larger std, in grid units, are dithered: a uniform integer is added to each, over
# 2^-DITHER_BITS of the std, or down to half of that, as its range is a power of two.
DITHER_THRESHOLD = 2.0**21
DITHER_BITS = 9
_DELTA_SHARE = 2.0**-11  # share of delta for improbable draws, and as much for `SamplerError.total_variation`
SAMPLER_RESERVE = 2.0**-9  # share of epsilon and delta reserved for the sampler; no run may need more
_MIN_RESERVE_EPSILON = 0.01  # for a smaller epsilon, the reserve is a share of this
# log(1 / p) of the least probable event covered. u below 2^-980 = e^-679 is not; none of 10^16 pairs has one
# but with probability e^-642. If an event as rare as this matters, no epsilon is stated.
MAX_LOG_INVERSE = 640.0
MIN_FAIR_BITS = 2**16  # binomial noise of fewer coins is not close enough to normal
TRUNCATION = 38.0  # standard deviations of binomial noise beyond which a share e^-642 of draws is cut off


class SamplerError(NamedTuple):
    """Distance of sampled from exact noise (default: none), summed over the draws that protect one sample."""

    sum_of_squares: float = 0.0  # sum over pairs of the mean square of tau
    max_tau: float = 0.0  # largest tau of any grid cell
    total_variation: float = 0.0  # probability with which the noise is not covered by tau

    def __add__(self, other: "SamplerError") -> "SamplerError":  # type: ignore[override]
        squares, taus, variations = zip(self, other, strict=True)
        return SamplerError(sum(squares), max(taus), sum(variations))

    def log_ratio_bound(self, log_inverse: float) -> float:
        """Bound xi on |log Q / P|, exceeded with probability at most e^-log_inverse (Bernstein)."""
        linear = self.max_tau * log_inverse / 3
        return self.sum_of_squares + linear + math.sqrt(linear**2 + 2 * self.sum_of_squares * log_inverse)


EXACT = SamplerError()  # of exact noise


def sampler_error(
    d: int, messages: int, smallest: float, largest: float, dither_threshold: float = DITHER_THRESHOLD
) -> SamplerError:
    """Sampler error of normal noise of std `smallest` to `largest` grid units, messages of d coordinates."""
    if smallest < MIN_STD_UNITS:
        return SamplerError(math.inf, math.inf)
    # Width of a cell in stds: one grid unit, or with dithering, 2^-(DITHER_BITS + 1) or more.
    width = 1 / min(largest, dither_threshold) if smallest <= dither_threshold else 2.0 ** -(DITHER_BITS + 1)
    return SamplerError(messages * d * (6.5 * ERROR / width) ** 2, 2.0**-41 / width + 2.0**-60 / width**2)


def rounded_sum_error(numbers: int, shares: int, std_units: float) -> SamplerError:
    """Sampler error of `numbers` sums of `shares` normals, each rounded, instead of rounded once."""
    # Proof: docs/background/privacy-proofs.md
    if shares == 1:
        return EXACT
    if std_units < 1:
        return SamplerError(0.0, 0.0, math.inf)
    square = std_units * std_units
    log_cell = 3 * shares * math.exp(-square * math.pi**2 / 4) - math.pi**2 * square * (1 - 1 / shares)
    per_cell = math.exp(min(log_cell, 700.0))
    tail = 2 * math.exp(-shares * (square - 0.5) ** 2 / (2 * square))
    return SamplerError(0.0, 0.0, numbers * ((shares * square + 1) * per_cell + tail))


def epsilon_with_sampler(epsilon_at: Callable[[float], float], delta: float, error: SamplerError) -> float:
    """Epsilon at `delta` for sampled noise, from the curve for exact noise; infinite if errors are too large.

    With probability at least 1 - delta', both Q <= e^xi P and P <= e^xi Q. From (epsilon, delta'')-DP for P
    follows (epsilon + 2 xi, e^xi delta'' + (1 + e^(epsilon + xi)) delta')-DP for Q.
    """
    exact = epsilon_at(delta)
    if error == EXACT:
        return exact
    log_inverse, variation = _log_inverse(exact, delta), error.total_variation
    if log_inverse > MAX_LOG_INVERSE or (variation > 0 and -math.log(variation) < log_inverse):
        return math.inf
    remaining = 1 - _DELTA_SHARE * (1 + (variation > 0))
    xi = error.log_ratio_bound(log_inverse)
    if 2 * xi > _max_epsilon(exact):
        return math.inf
    epsilon = epsilon_at(delta * remaining * math.exp(-xi)) + 2 * xi
    return epsilon if epsilon <= _max_epsilon(exact) else math.inf


def is_negligible(epsilon: float, exact: float, delta: float) -> bool:
    """Whether the noise sampler adds no more than its reserve to the epsilon of exact noise."""
    reserve = SAMPLER_RESERVE * max(exact, _MIN_RESERVE_EPSILON)
    return _log_inverse(exact, delta) > MAX_LOG_INVERSE or epsilon - exact <= reserve


def _max_epsilon(exact: float) -> float:
    """Largest epsilon that may be stated for sampled noise if exact noise has epsilon `exact`."""
    return 1.01 * exact + 0.01


def _log_inverse(exact: float, delta: float) -> float:
    """Compute -log of the probability delta' of uncovered draws, for a small share of delta."""
    return _max_epsilon(exact) + math.log(2 / (_DELTA_SHARE * delta))
