"""Bounds, with stated confidence, on what numbers give away; and a test of whether bits are uniform."""

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mu2mpi.core.kernels import kernel
from mu2mpi.losses.loss import Array

CONFIDENCE = 0.99  # of all that an audit says together
RIDGE = 1e-12  # share of all variance that every number is taken to have, lest one be divided by none
MIN_WORDS = 64 * 256  # with fewer, Pearson's statistic of bytes has a longer tail than chi-square


class Interval(NamedTuple):
    """An estimate, and between which values the truth lies."""

    estimate: float
    low: float
    high: float


def best_statistics(noise: Array, differences: Array) -> Array:
    """Return weights of linear discriminants (Fisher, 1936), shape (pairs, numbers) as of `differences`."""
    covariance = np.cov(noise, rowvar=False)
    ridge = RIDGE * (np.trace(covariance) + np.sum(differences**2, axis=1).max())
    return np.linalg.solve(covariance + ridge * np.eye(len(covariance)), differences.T).T


class Separations:
    """Distances `mu` of means of pairs of populations in standard deviations; `kinds` marks the second."""

    def __init__(self, scores: Array, kinds: NDArray[np.bool_]) -> None:
        runs, second = len(scores), kinds.sum(axis=0)
        first_mean = (scores * ~kinds).sum(axis=0) / (runs - second)
        second_mean = (scores * kinds).sum(axis=0) / second
        gap, rest = second_mean - first_mean, scores - np.where(kinds, second_mean, first_mean)
        # What has no noise at all is told apart, by a number that can still be computed with.
        deviation = np.maximum(np.sqrt((rest**2).sum(axis=0) / (runs - 2)), RIDGE * np.abs(gap))
        deviation[deviation == 0] = 1.0
        rest /= deviation
        self.mu = gap / deviation
        # What each run moves the estimates by, times the number of runs.
        shares = np.where(kinds, runs / second, -runs / (runs - second))
        self._influence = shares * rest - self.mu * (rest**2 - 1) / 2

    def combined(self, weights: Array, risk: float) -> list[Interval]:
        """Return intervals of sums of mu, weighted by each row, of which each end errs with this risk."""
        influence = self._influence @ weights.T
        errors = influence.std(axis=0) / math.sqrt(len(influence))
        sums, margins = weights @ self.mu, NormalDist().inv_cdf(1 - risk) * errors
        return list(map(Interval, sums.tolist(), (sums - margins).tolist(), (sums + margins).tolist()))


def choose_threshold(without: Array, with_canary: Array, delta: float) -> float:
    """Return the threshold of a statistic beyond which the most seems to be given away, by simple bounds."""
    values = np.unique(np.concatenate([without, with_canary]))
    thresholds = np.append((values[1:] + values[:-1]) / 2, values[-1])
    alarms, hits = (
        (len(scores) - np.searchsorted(np.sort(scores), thresholds, side="right")).astype(float)
        for scores in (without, with_canary)
    )
    at_least = hits - 2 * np.sqrt(hits) - delta * len(with_canary)
    at_most = alarms + 2 * np.sqrt(alarms) + 4
    return float(thresholds[np.argmax(at_least / at_most)])


def epsilon_bound(without: Array, with_canary: Array, threshold: float, delta: float, risk: float) -> float:
    """Return an epsilon that the runs exceed at this delta, or 0; the bound errs with probability `risk`.

    It counts how often a threshold, chosen on other runs, is passed (Jagielski, Ullman and Oprea, 2020).
    """
    alarm = largest_probability(int(np.sum(without > threshold)), len(without), risk / 2)
    hit = 1 - largest_probability(int(np.sum(with_canary <= threshold)), len(with_canary), risk / 2)
    return max(0.0, math.log((hit - delta) / alarm)) if hit > delta else 0.0


def largest_probability(successes: int, trials: int, risk: float) -> float:
    """Return a bound on the probability of success, which errs with probability `risk` (Clopper, Pearson)."""
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
def count_bytes(counts, words):  # type: ignore[no-untyped-def]
    """Add the bytes of words, int64 of shape (n,), to counts from the lowest on, shape (bytes, 256)."""
    for word in words:
        for byte in range(len(counts)):
            counts[byte, word >> 8 * byte & 255] += 1


def byte_evidence(words: NDArray[np.int64]) -> Array:
    """Evidence against uniform words in each of their bytes, or if they are few, in halves of bytes."""
    counts = np.zeros((8, 256), np.int64)
    count_bytes(counts, np.ravel(words))
    if words.size < MIN_WORDS:
        halves = counts.reshape(8, 16, 16)
        counts = np.concatenate([halves.sum(axis=1), halves.sum(axis=2)])
    return chi_square_evidence(counts)


def chi_square_evidence(counts: NDArray[np.int64]) -> Array:
    """Evidence against uniform counts, shape (..., values): -log of an upper bound on each row's p-value.

    By Chernoff, P(chi-square >= r f) <= (r e^(1 - r))^(f / 2) for f degrees of freedom and r > 1.
    """
    freedom = counts.shape[-1] - 1
    expected = counts.sum(axis=-1, keepdims=True) / counts.shape[-1]
    ratios = np.maximum(((counts - expected) ** 2 / expected).sum(axis=-1) / freedom, 1.0)
    evidence: Array = freedom / 2 * (ratios - 1 - np.log(ratios))
    return evidence
