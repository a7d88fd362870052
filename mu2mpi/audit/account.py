"""Lower bounds on epsilon for a noise multiplier, computed independently of the accountants under audit.

The privacy loss of T rounds on one pair of neighbouring data sets is composed by FFT (Koskela, Jälkö and
Honkela, "Computing tight differential privacy guarantees using FFT", 2020). Losses are rounded down, so that
errors of the computation favour the claim.
"""

import math
from typing import NamedTuple

import numpy as np

from mu2mpi.federation.sampling import Poisson, Sampling, WithReplacement
from mu2mpi.problem.base import Array

NODES, TAIL = 1 << 14, 12.0
"""Points at which the densities of a round are evaluated, up to so many standard deviations from any mean."""

LOSSES = 1 << 20
"""Length of the discretised distribution of the privacy loss."""

NEGLIGIBLE = 1e-16
"""Probabilities below the rounding errors of the FFT; without them, epsilon is smaller."""

MIN_MULTIPLIER = 0.02
"""Noise below it is taken for so much, to keep the densities within reach of the nodes."""


class Pair(NamedTuple):
    """Two mixtures of unit normals with common weights: a round's message on neighbouring data sets."""

    weights: Array
    means: Array
    other_means: Array


def round_pair(sampling: Sampling, multiplier: float) -> Pair | None:
    """Return the messages that show the most of one sample; None for an unknown kind of sampling.

    Of increments in units of the noise std, the sample's is 1 / multiplier in length, and its replacement's
    is the opposite. With Poisson sampling others are 0. With replacement they are those of the sample itself.
    """
    step = 1 / max(multiplier, MIN_MULTIPLIER)
    if isinstance(sampling, Poisson):
        q = sampling.probability
        return Pair(np.array([1 - q, q]), step * np.array([0.0, 1.0]), step * np.array([0.0, -1.0]))
    if isinstance(sampling, WithReplacement):
        weights = _multiplicities(sampling.owned, sampling.most)
        means = 2 * step * np.arange(len(weights), dtype=np.float64)
        return Pair(weights, np.zeros(len(weights)), means)
    return None


def _multiplicities(n: int, K: int) -> Array:
    """Return the probabilities with which a sample of n is drawn 0, 1, 2, ... times in K draws."""
    found, j = [(1 - 1 / n) ** K], 0
    while j < K and n > 1 and (found[-1] > NEGLIGIBLE or j < K / n):
        found.append(found[-1] * (K - j) / ((j + 1) * (n - 1)))
        j += 1
    return np.array(found if n > 1 else [*[0.0] * K, 1.0])


def theorem_multiplier(sampling: WithReplacement, rounds: int, epsilon: float, delta: float) -> float:
    """Return the noise multiplier that Theorem D.2 of Lowy and Razaviyayn, 2023, asks for."""
    logs = math.log(2.5 * rounds / delta) * math.log(2 / delta)
    return 16 * sampling.most * math.sqrt(rounds * logs) / (sampling.owned * epsilon)


def epsilon_at_least(pair: Pair, rounds: int, delta: float) -> float:
    """Return a lower bound on the epsilon of so many rounds at delta; infinite if there is none."""
    swapped = Pair(pair.weights, pair.other_means, pair.means)
    return max(_epsilon(pair, rounds, delta), _epsilon(swapped, rounds, delta))


def _epsilon(pair: Pair, rounds: int, delta: float) -> float:
    """Lower bound on epsilon in one direction: log-likelihood ratio of the first data set to the second."""
    ends = np.concatenate([pair.means, pair.other_means])
    x = np.linspace(ends.min() - TAIL, ends.max() + TAIL, NODES)
    with np.errstate(divide="ignore"):
        log_weights = np.log(pair.weights)[:, np.newaxis]
    first, second = (
        np.logaddexp.reduce(log_weights - (x - means[:, np.newaxis]) ** 2 / 2)
        for means in (pair.means, pair.other_means)
    )
    losses, mass = first - second, np.exp(first)
    mass /= mass.sum()
    mean = float(mass @ losses)
    std = math.sqrt(float(mass @ (losses - mean) ** 2))
    # Sums of losses beyond the width, which wrap around, are less likely than delta by far.
    width = 2 * (TAIL * std * math.sqrt(rounds) + 2 * float(np.abs(losses).max()))
    spacing = width / LOSSES
    cells = np.floor(losses / spacing).astype(np.int64) % LOSSES
    composed = np.fft.irfft(np.fft.rfft(np.bincount(cells, mass, LOSSES)) ** rounds, LOSSES)
    start = round(rounds * mean / spacing) - LOSSES // 2
    sums = spacing * (start + np.arange(LOSSES))
    p = np.roll(composed, -(start % LOSSES))
    p[p < NEGLIGIBLE] = 0.0
    p, sums = p[sums >= 0], sums[sums >= 0]
    above, tilted = (np.cumsum(of[::-1])[::-1] for of in (p, p * np.exp(-sums)))
    deltas = above - np.exp(np.minimum(sums, 700.0)) * tilted
    kept = deltas <= delta
    return max(0.0, float(sums[np.argmax(kept)]) - spacing) if kept.any() else math.inf
