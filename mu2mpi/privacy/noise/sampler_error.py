"""Error of the noise sampler against exact rounded normals, and what it adds to epsilon.

Let P be the probability of a grid cell for an exact pair of rounded normals, and Q that for a sampled pair.
docs/background/sampler.md bounds |Q / P - 1| <= tau. Over n pairs, log Q / P adds up to more than xi only
with a probability that Bernstein's inequality bounds (Boucheron, Lugosi and Massart, "Concentration
inequalities", 2013: Theorem 2.10). Epsilon grows by 2 xi.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

# A coordinate of a pair at radius r is computed, scaled and rounded with an error of at most r times this,
# in stds. In units of 2^-53: 5.6 for the radius before its root is rounded, 1 for that, 1.5 for u (53
# bits), 3.2 for sine and cosine, 1 for each of two products, 0.4 for the angle (53 bits); and a margin.
NORMAL_DRAW_RELATIVE_ERROR = 16 * 2.0**-53
MIN_STD_UNITS = 2.0**12  # smallest noise std, in grid units, that the bound covers
# Draws with a larger std, in grid units, are dithered: a uniform integer is added to each, over
# 2^-DITHER_BITS of the std, or down to half of that, as its range is a power of two.
DITHER_THRESHOLD = 2.0**21
DITHER_BITS = 9
SAMPLER_DELTA_SHARE = 2.0**-11  # of delta, for improbable draws, and as much for `total_variation`
SAMPLER_BUDGET_SHARE = 2.0**-9  # share of epsilon and delta reserved for the sampler; no run may need more
# log(1 / p) of the least probable event covered. u below 2^-980 = e^-679 is not; none of 10^16 pairs has one
# but with probability e^-642. If an event as rare as this matters, no epsilon is stated.
MAX_NEG_LOG_PROBABILITY = 640.0
MIN_FAIR_BITS = 2**16  # binomial noise of fewer coins is not close enough to normal
TRUNCATION_STDS = 38.0  # stds of binomial noise beyond which a share e^-642 of draws is cut off


class SamplerError(NamedTuple):
    """Sampler error bound, summed over the noise that protects one sample (default: none)."""

    sum_squared_ratio_errors: float = 0.0  # sum over pairs of the mean square of tau
    max_ratio_error: float = 0.0  # largest tau of any grid cell
    total_variation: float = 0.0  # probability with which the noise is not covered by tau

    def __add__(self, other: "SamplerError") -> "SamplerError":  # type: ignore[override]
        squares, taus, variations = zip(self, other, strict=True)
        return SamplerError(sum(squares), max(taus), sum(variations))

    def log_ratio_bound(self, neg_log_probability: float) -> float:
        """Bound xi on |log Q / P|, exceeded with probability at most e^-neg_log_probability (Bernstein)."""
        square, linear = self.sum_squared_ratio_errors, self.max_ratio_error * neg_log_probability / 3
        return square + linear + math.sqrt(linear**2 + 2 * square * neg_log_probability)


NO_SAMPLER_ERROR = SamplerError()  # of exact noise


def sampler_error(
    d: int, messages: int, min_std: float, max_std: float, dither_threshold: float = DITHER_THRESHOLD
) -> SamplerError:
    """Sampler error of normal noise of std `min_std` to `max_std` grid units, messages of d coordinates."""
    if min_std < MIN_STD_UNITS:
        return SamplerError(math.inf, math.inf)
    # Width of a cell in stds: one grid unit, or with dithering, 2^-(DITHER_BITS + 1) or more.
    is_dithered = min_std > dither_threshold
    width = 2.0 ** -(DITHER_BITS + 1) if is_dithered else 1 / min(max_std, dither_threshold)
    square = messages * d * (6.5 * NORMAL_DRAW_RELATIVE_ERROR / width) ** 2
    return SamplerError(square, 2.0**-41 / width + 2.0**-60 / width**2)


def rounding_error(n_sums: int, noise_shares: int, std_units: float) -> SamplerError:
    """Sampler error of `n_sums` sums of `noise_shares` normals, each rounded, instead of rounded once."""
    # Proof: docs/background/privacy-proofs.md
    if noise_shares == 1:
        return NO_SAMPLER_ERROR
    if std_units < 1:
        return SamplerError(0.0, 0.0, math.inf)
    M, square = noise_shares, std_units * std_units
    log_cell = 3 * M * math.exp(-square * math.pi**2 / 4) - math.pi**2 * square * (1 - 1 / M)
    per_cell = math.exp(min(log_cell, 700.0))
    tail = 2 * math.exp(-M * (square - 0.5) ** 2 / (2 * square))
    return SamplerError(0.0, 0.0, n_sums * ((M * square + 1) * per_cell + tail))


def epsilon_with_sampler(epsilon_at: Callable[[float], float], delta: float, error: SamplerError) -> float:
    """Epsilon at `delta` for sampled noise, from the curve for exact noise; infinite if errors are too large.

    With probability at least 1 - delta', both Q <= e^xi P and P <= e^xi Q. From (epsilon, delta'')-DP for P
    follows (epsilon + 2 xi, e^xi delta'' + (1 + e^(epsilon + xi)) delta')-DP for Q.
    """
    exact_epsilon = epsilon_at(delta)
    if error == NO_SAMPLER_ERROR:
        return exact_epsilon
    neg_log_p, variation = _neg_log_probability(exact_epsilon, delta), error.total_variation
    if neg_log_p > MAX_NEG_LOG_PROBABILITY or (variation > 0 and -math.log(variation) < neg_log_p):
        return math.inf
    remaining = 1 - SAMPLER_DELTA_SHARE * (1 + (variation > 0))
    xi = error.log_ratio_bound(neg_log_p)
    if 2 * xi > _max_stated_epsilon(exact_epsilon):
        return math.inf
    epsilon = epsilon_at(delta * remaining * math.exp(-xi)) + 2 * xi
    return epsilon if epsilon <= _max_stated_epsilon(exact_epsilon) else math.inf


def is_sampler_negligible(epsilon: float, exact_epsilon: float, delta: float) -> bool:
    """Whether the noise sampler adds no more than its reserve to the epsilon of exact noise."""
    if _neg_log_probability(exact_epsilon, delta) > MAX_NEG_LOG_PROBABILITY:
        return True
    # For a smaller epsilon, the reserve is a share of 0.01.
    return epsilon - exact_epsilon <= SAMPLER_BUDGET_SHARE * max(exact_epsilon, 0.01)


def _max_stated_epsilon(exact_epsilon: float) -> float:
    """Largest epsilon that may be stated for sampled noise if exact noise has epsilon `exact_epsilon`."""
    return 1.01 * exact_epsilon + 0.01


def _neg_log_probability(exact_epsilon: float, delta: float) -> float:
    """Compute -log of the probability that the error bound fails, a small share of delta."""
    return _max_stated_epsilon(exact_epsilon) + math.log(2 / (SAMPLER_DELTA_SHARE * delta))
