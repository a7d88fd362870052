"""Confidence bounds on privacy loss from observed statistics, and tests of uniform bits."""

import math
from itertools import pairwise
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from scipy.special import betainccinv

from mu2mpi.core.arrays import BoolArray, FloatArray, IntArray

AUDIT_CONFIDENCE = 0.99  # joint confidence in all statements of an audit
RELATIVE_RIDGE = 1e-12  # ridge of the covariance relative to its trace
MIN_LOOK_TRIALS = 500  # fewest trials of a look before the last: estimates are close to normal
MIN_TEST_BYTES = 64 * 256  # fewest bytes for Pearson's test; with fewer, its tail is too long


class ConfidenceInterval(NamedTuple):
    """Estimate of a number, with the lower and upper ends of its confidence interval."""

    estimate: float
    low: float
    high: float


def schedule_looks(trials: int, min_trials: int) -> list[tuple[int, float]]:
    """Return numbers of trials after which an audit may stop, with shares of the error probability.

    Error spending that is linear in the trials (Lan and DeMets, 1983): by the union bound, the statements of
    all looks hold jointly, and so do those of the look at which an audit stops, whatever the rule.
    """
    early = [n for n in (trials // 8, trials // 4, trials // 2) if n >= max(min_trials, MIN_LOOK_TRIALS)]
    return [(n, (n - previous) / trials) for previous, n in pairwise([0, *early, trials])]


def fisher_discriminants(noise: FloatArray, differences: FloatArray) -> FloatArray:
    """Return Fisher's linear discriminants for mean differences of populations; shape (pairs, numbers)."""
    covariance = np.cov(noise, rowvar=False)
    ridge = RELATIVE_RIDGE * (np.trace(covariance) + np.sum(differences**2, axis=1).max())
    return np.linalg.solve(covariance + ridge * np.eye(len(covariance)), differences.T).T


class MeanSeparation:
    """Separation `mu` of the mean scores of pairs of populations, in standard deviations.

    Scores have the shape (runs, pairs); variants tell which belong to the second population of their pair.
    """

    def __init__(self, scores: FloatArray, variants: BoolArray) -> None:
        runs, second = len(scores), variants.sum(axis=0)
        first_mean = (scores * ~variants).sum(axis=0) / (runs - second)
        second_mean = (scores * variants).sum(axis=0) / second
        gap, rest = second_mean - first_mean, scores - np.where(variants, second_mean, first_mean)
        # Scores without any noise get a large but finite separation.
        std = np.maximum(np.sqrt((rest**2).sum(axis=0) / (runs - 2)), RELATIVE_RIDGE * np.abs(gap))
        std[std == 0] = 1.0
        rest /= std
        self.mu = gap / std
        # Influence function of the estimates: change by each run, times the number of runs.
        shares = np.where(variants, runs / second, -runs / (runs - second))
        self._influence = shares * rest - self.mu * (rest**2 - 1) / 2

    def weighted_sums(self, weights: FloatArray, error_probability: float) -> list[ConfidenceInterval]:
        """Return confidence intervals of sums of mu, per row of weights; `error_probability` of each end."""
        influence = self._influence @ weights.T
        errors = influence.std(axis=0) / math.sqrt(len(influence))
        sums, margins = weights @ self.mu, NormalDist().inv_cdf(1 - error_probability) * errors
        ends = (sums - margins).tolist(), (sums + margins).tolist()
        return list(map(ConfidenceInterval, sums.tolist(), *ends))


def epsilon_lower_bound(
    learning: list[FloatArray], judged: list[FloatArray], delta: float, error: float
) -> float:
    """Return a lower bound on epsilon at delta, wrong with probability `error`; 0 if none is positive.

    Runs have scores without a canary and with it. The bound counts those of judged runs above the threshold
    that is best for the others (Jagielski, Ullman and Oprea, 2020).
    """

    def exp_epsilon(scores: list[FloatArray], thresholds: FloatArray) -> Any:
        below = [np.searchsorted(np.sort(side), thresholds, "right") for side in scores]
        alarm = clopper_pearson_upper(len(scores[0]) - below[0], len(scores[0]), error / 2)
        return (1 - clopper_pearson_upper(below[1], len(scores[1]), error / 2) - delta) / alarm

    values = np.unique(np.concatenate(learning))
    thresholds = np.append((values[1:] + values[:-1]) / 2, values[-1])
    best = np.argmax(exp_epsilon(learning, thresholds))
    return math.log(max(1.0, float(exp_epsilon(judged, thresholds[best]))))


def clopper_pearson_upper(successes: Any, trials: int, error_probability: float) -> Any:
    """Return upper confidence limits of binomial probabilities, each wrong with `error_probability`."""
    # The limit is 1 if all trials are successes.
    limits = betainccinv(successes + 1, np.maximum(trials - successes, 1), error_probability)
    return np.where(successes < trials, limits, 1.0)


def uneven_byte_evidence(values: IntArray) -> FloatArray:
    """Return -log of a p-value of the uniformity of bytes of int64 values, half-bytes for few values."""
    columns = np.ravel(values).astype("<i8").view(np.uint8).reshape(-1, 8).T
    counts = np.array([np.bincount(column, minlength=256) for column in columns])
    if values.size < MIN_TEST_BYTES:
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
    return np.asarray(degrees / 2 * (ratios - 1 - np.log(ratios)))
