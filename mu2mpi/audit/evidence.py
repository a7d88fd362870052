"""What two sets of numbers say about the mechanism that made them: bounds, with stated confidence."""

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mu2mpi.problem.base import Array

CONFIDENCE = 0.99
"""Of all that an audit says together."""

RIDGE = 1e-12
"""Variance, as a share of all there is, that every number is taken to have, lest one be divided by none."""


class Interval(NamedTuple):
    """An estimate, and between which values the truth lies."""

    estimate: float
    low: float
    high: float


def best_statistics(noise: Array, differences: Array) -> Array:
    """Return the weights of the linear statistics that best tell Gaussian populations apart.

    What was seen in each run but for its mean is `noise`, shape (runs, numbers); the means of the populations
    of each pair differ by `differences`, of the shape of the weights, (pairs, numbers). Nothing is assumed of
    the noise but what runs show: noise that is too small, or shared between numbers that should have their
    own, is found (Fisher, "The use of multiple measurements in taxonomic problems", 1936).
    """
    covariance = np.cov(noise, rowvar=False)
    ridge = RIDGE * (np.trace(covariance) + np.sum(differences**2, axis=1).max())
    return np.linalg.solve(covariance + ridge * np.eye(len(covariance)), differences.T).T


class Separations:
    """How far apart the means of statistics lie in two populations, in their standard deviations: mu.

    By a normal statistic, such as one that is linear in Gaussian releases, populations are as hard to tell
    apart as N(0, 1) and N(mu, 1): the releases are not Gaussian-DP for any smaller mu. There is a score for
    each run and pair of populations, and a kind: whether the run is of the second one. The kinds of different
    pairs are independent. The estimates are `mu`, shape (pairs,).
    """

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
    """Return the threshold of a statistic beyond which the most seems to be given away.

    Any choice is valid, if others are judged by it: so the bounds on probabilities are simple ones here.
    """
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
    """Return an epsilon that the runs exceed at this delta; 0 if there is none.

    (epsilon, delta)-DP allows the statistic to pass a threshold with at most probability
    e^epsilon p + delta on the one data set, if p is that on the other. Both are bounded by counting, whatever
    the distribution of the statistic. The threshold is to be chosen without a look at these runs, and `risk`
    is the probability with which the bound errs (Jagielski, Ullman and Oprea, "Auditing differentially
    private machine learning", 2020).
    """
    alarm = largest_probability(int(np.sum(without > threshold)), len(without), risk / 2)
    hit = 1 - largest_probability(int(np.sum(with_canary <= threshold)), len(with_canary), risk / 2)
    return max(0.0, math.log((hit - delta) / alarm)) if hit > delta else 0.0


def largest_probability(successes: int, trials: int, risk: float) -> float:
    """Return the p at which no more successes than these have just the probability `risk`.

    It bounds the probability of success (Clopper and Pearson, "The use of confidence or fiducial limits
    illustrated in the case of the binomial", 1934).
    """
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
