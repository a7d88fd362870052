"""Confidence bounds on privacy loss from observed statistics, and tests of uniform bits."""

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from mu2mpi.core.arrays import BoolArray, FloatArray, IntArray
from mu2mpi.core.kernels import kernel

CONFIDENCE = 0.99  # joint confidence in all statements of an audit
RIDGE_SHARE = 1e-12  # ridge of the covariance relative to its trace
MIN_VALUES = 64 * 256  # fewest bytes for Pearson's test; with fewer, its tail is too long


class Interval(NamedTuple):
    """Estimate of a number, with the lower and upper ends of its confidence interval."""

    estimate: float
    low: float
    high: float


def fisher_discriminants(noise: FloatArray, differences: FloatArray) -> FloatArray:
    """Return Fisher's linear discriminants for mean differences of populations; shape (pairs, numbers)."""
    covariance = np.cov(noise, rowvar=False)
    ridge = RIDGE_SHARE * (np.trace(covariance) + np.sum(differences**2, axis=1).max())
    return np.linalg.solve(covariance + ridge * np.eye(len(covariance)), differences.T).T


class MeanSeparation:
    """Separation `mu` of the mean scores of pairs of populations, in standard deviations.

    Parameters
    ----------
    scores : ndarray, shape (runs, pairs)
    variants : ndarray of bool, shape (runs, pairs)
        Whether a score belongs to the second population of its pair.
    """

    def __init__(self, scores: FloatArray, variants: BoolArray) -> None:
        runs, second = len(scores), variants.sum(axis=0)
        first_mean = (scores * ~variants).sum(axis=0) / (runs - second)
        second_mean = (scores * variants).sum(axis=0) / second
        gap, rest = second_mean - first_mean, scores - np.where(variants, second_mean, first_mean)
        # Scores without any noise get a large but finite separation.
        std = np.maximum(np.sqrt((rest**2).sum(axis=0) / (runs - 2)), RIDGE_SHARE * np.abs(gap))
        std[std == 0] = 1.0
        rest /= std
        self.mu = gap / std
        # Influence function of the estimates: change by each run, times the number of runs.
        shares = np.where(variants, runs / second, -runs / (runs - second))
        self._influence = shares * rest - self.mu * (rest**2 - 1) / 2

    def weighted_sums(self, weights: FloatArray, risk: float) -> list[Interval]:
        """Return confidence intervals of sums of mu, per row of weights; each end errs with `risk`."""
        influence = self._influence @ weights.T
        errors = influence.std(axis=0) / math.sqrt(len(influence))
        sums, margins = weights @ self.mu, NormalDist().inv_cdf(1 - risk) * errors
        return list(map(Interval, sums.tolist(), (sums - margins).tolist(), (sums + margins).tolist()))


def choose_threshold(without: FloatArray, with_canary: FloatArray, delta: float) -> float:
    """Return the threshold of a test statistic that maximises a rough lower bound on epsilon."""
    values = np.unique(np.concatenate([without, with_canary]))
    thresholds = np.append((values[1:] + values[:-1]) / 2, values[-1])
    alarms, hits = (
        (len(scores) - np.searchsorted(np.sort(scores), thresholds, side="right")).astype(float)
        for scores in (without, with_canary)
    )
    min_hits = hits - 2 * np.sqrt(hits) - delta * len(with_canary)
    max_alarms = alarms + 2 * np.sqrt(alarms) + 4
    return float(thresholds[np.argmax(min_hits / max_alarms)])


def epsilon_lower_bound(
    without: FloatArray, with_canary: FloatArray, threshold: float, delta: float, risk: float
) -> float:
    """Return a lower bound on epsilon at delta, which errs with probability `risk`; 0 if none is positive.

    The bound counts scores above a threshold chosen on other runs (Jagielski, Ullman and Oprea, 2020).
    """
    alarm = clopper_pearson_upper(int(np.sum(without > threshold)), len(without), risk / 2)
    hit = 1 - clopper_pearson_upper(int(np.sum(with_canary <= threshold)), len(with_canary), risk / 2)
    return max(0.0, math.log((hit - delta) / alarm)) if hit > delta else 0.0


def clopper_pearson_upper(successes: int, trials: int, risk: float) -> float:
    """Return an upper confidence limit of a binomial probability, which errs with probability `risk`."""
    if successes == trials:
        return 1.0
    k = np.arange(successes + 1)
    log_choose = np.append(0.0, np.cumsum(np.log((trials - k[1:] + 1) / k[1:])))
    low, high = successes / trials, 1.0
    while high - low > 1e-9 * high:
        p = (low + high) / 2
        is_high = np.exp(log_choose + k * math.log(p) + (trials - k) * math.log1p(-p)).sum() < risk
        low, high = (low, p) if is_high else (p, high)
    return high


@kernel
def count_bytes(counts, values):  # type: ignore[no-untyped-def]
    """Add the bytes of int64 values, shape (n,), from the lowest on, to counts, shape (bytes, 256)."""
    for value in values:
        for byte in range(len(counts)):
            counts[byte, value >> 8 * byte & 255] += 1


def byte_evidence(values: IntArray) -> FloatArray:
    """Return evidence against uniform bytes of int64 values, or half-bytes for few values; natural log."""
    counts = np.zeros((8, 256), np.int64)
    count_bytes(counts, np.ravel(values))
    if values.size < MIN_VALUES:
        halves = counts.reshape(8, 16, 16)
        counts = np.concatenate([halves.sum(axis=1), halves.sum(axis=2)])
    return chi_square_evidence(counts)


def chi_square_evidence(counts: IntArray) -> FloatArray:
    """Return evidence against uniform counts, shape (..., values): -log of a p-value bound per row.

    By Chernoff, P(chi-square >= r f) <= (r e^(1 - r))^(f / 2) for f degrees of freedom and r > 1.
    """
    degrees = counts.shape[-1] - 1
    expected = counts.sum(axis=-1, keepdims=True) / counts.shape[-1]
    ratios = np.maximum(((counts - expected) ** 2 / expected).sum(axis=-1) / degrees, 1.0)
    evidence: FloatArray = degrees / 2 * (ratios - 1 - np.log(ratios))
    return evidence
