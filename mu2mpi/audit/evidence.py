"""What two sets of numbers say about the mechanism that made them: bounds from below, with 95% confidence."""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

__all__ = ["CONFIDENCE", "Interval", "best_statistic", "epsilon_bound", "gaussian_mu", "largest_probability"]

CONFIDENCE = 0.95

DEVIATIONS = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
"""A normal variable lies within so many standard deviations of its mean with this confidence."""

RIDGE = 1e-12
"""Variance, as a share of all there is, that every number is taken to have, lest one be divided by none."""


@dataclass(frozen=True)
class Interval:
    """An estimate, and between which values the truth lies with 95% confidence."""

    estimate: float
    low: float
    high: float


def best_statistic(
    without: NDArray[np.float64], with_canary: NDArray[np.float64], difference: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the weights of the linear statistic that best tells two Gaussian populations apart.

    Nothing is assumed of the noise but what runs of the two show: noise that is too small, or shared between
    numbers that should have their own, is found.

    Parameters
    ----------
    without, with_canary : ndarray of float64, shape (n, numbers)
        What was seen in n runs on the one data set, and on the other.
    difference : ndarray of float64, shape (numbers,)
        What the means differ by.

    References
    ----------
    Fisher, "The use of multiple measurements in taxonomic problems", 1936.
    """
    covariance = (np.cov(without, rowvar=False) + np.cov(with_canary, rowvar=False)) / 2
    ridge = RIDGE * (np.trace(covariance) + difference @ difference)
    return np.linalg.solve(covariance + ridge * np.eye(len(difference)), difference)


def gaussian_mu(without: NDArray[np.float64], with_canary: NDArray[np.float64]) -> Interval:
    """Return how far apart the means of a statistic lie, in its standard deviations.

    If the statistic is normal, as one that is linear in Gaussian releases is, to tell the data sets apart by
    it is as hard as to tell N(0, 1) from N(mu, 1): the releases are not Gaussian-DP for any smaller mu.

    Parameters
    ----------
    without, with_canary : ndarray of float64, shape (n,)
        The statistic in n runs on the one data set, and on the other.
    """
    n = len(without)
    gap = float(with_canary.mean() - without.mean())
    deviation = math.sqrt((without.var(ddof=1) + with_canary.var(ddof=1)) / 2)
    if deviation == 0:
        mu = math.copysign(math.inf, gap) if gap else 0.0
        return Interval(mu, mu, mu)
    mu = gap / deviation
    margin = DEVIATIONS * math.sqrt(2 / n + mu * mu / (4 * n))
    return Interval(mu, mu - margin, mu + margin)


def choose_threshold(without: NDArray[np.float64], with_canary: NDArray[np.float64], delta: float) -> float:
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


def epsilon_bound(
    without: NDArray[np.float64], with_canary: NDArray[np.float64], threshold: float, delta: float
) -> float:
    """Return an epsilon that the runs exceed at this delta with 95% confidence; 0 if there is none.

    (epsilon, delta)-DP allows the statistic to pass a threshold with at most probability
    e^epsilon p + delta on the one data set, if p is that on the other. Both are bounded by counting, whatever
    the distribution of the statistic.

    Parameters
    ----------
    without, with_canary : ndarray of float64, shape (n,)
        The statistic in n runs on the one data set, and on the other.
    threshold : float
        Chosen without looking at these.
    delta : float
        In (0, 1).

    References
    ----------
    Clopper and Pearson, "The use of confidence or fiducial limits illustrated in the case of the binomial",
    1934. Jagielski, Ullman and Oprea, "Auditing differentially private machine learning", 2020.
    """
    risk = (1 - CONFIDENCE) / 2
    n = len(without)
    alarm = largest_probability(int(np.sum(without > threshold)), n, risk)
    hit = 1 - largest_probability(n - int(np.sum(with_canary > threshold)), n, risk)
    return max(0.0, math.log((hit - delta) / alarm)) if hit > delta else 0.0


def largest_probability(successes: int, trials: int, risk: float) -> float:
    """Return Clopper and Pearson's bound: more is the probability of success only at this risk.

    It is the p at which no more successes than these have just the probability `risk`.
    """
    if successes == trials:
        return 1.0
    k = np.arange(1, successes + 1)
    log_choose = np.append(0.0, np.cumsum(np.log((trials - k + 1) / k)))
    k = np.arange(successes + 1)
    low, high = successes / trials, 1.0
    while high - low > 1e-9 * high:
        p = (low + high) / 2
        if np.exp(log_choose + k * math.log(p) + (trials - k) * math.log1p(-p)).sum() < risk:
            high = p
        else:
            low = p
    return high
