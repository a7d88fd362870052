"""Gaussian noise in sums over samples drawn with replacement, by the distribution of the privacy loss.

What one round tells at most follows from how often a sample is drawn, in the spirit of Balle, Barthe and
Gaboardi, "Privacy amplification by subsampling: tight analyses via couplings and divergences", 2018;
dp-accounting composes it. docs/background/methods.md has the proof.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.errors import InputError
from mu2mpi.privacy import losses
from mu2mpi.privacy.guarantee import Messages
from mu2mpi.privacy.mechanisms.base import Subsampled
from mu2mpi.privacy.mechanisms.replacement import ReplacementReleases, with_replacement_epsilon
from mu2mpi.registry import register

Array = NDArray[np.float64]

NEGLIGIBLE = 1e-20
"""Probability of losses beyond those that are listed, which counts as if all were lost."""

MOST_LOSSES = 8_000
"""Listed of a single round on either side: where they are large, they may be rounded up by more."""

HALVINGS, FARTHEST, ENDS = 30, 700.0, 31
"""By which thresholds are found: values are largest there, and change with the square of the error; the
largest loss that is listed, whose power of e is a number; and how many ends of the list are looked at."""


def hockey_stick(epsilons: Array, multiplier: float, samples: int, drawn: int) -> Array:
    """Return a delta of one round at each epsilon >= 0, `multiplier` being sigma / C.

    With x = e^epsilon, b_j the probability that a sample is drawn j times, s_j = 2 C j / sigma and
    u_j = s_j / 2 - epsilon / s_j it is the largest over t of (1 - x) b_0 Phi(t) + sum over j >= 1 of
    b_j F_j(min(t + s_j, u_j)), where F_j(u) = Phi(u) - x Phi(u - s_j).
    """
    from scipy.special import log_ndtr, ndtr
    from scipy.stats import binom

    most = int(binom.isf(NEGLIGIBLE, drawn, 1 / samples))
    often = np.arange(1, most + 1)
    b = binom.pmf(often, drawn, 1 / samples)
    b, s = b[b > 0], 2 * often[b > 0] / multiplier
    x, never = np.exp(epsilons), (1 - 1 / samples) ** drawn

    def slope(t: Array) -> Array:
        """Return the derivative by t, over the density at t: it falls."""
        ratios = (np.exp(np.minimum(-s_j * (t + s_j / 2), 700)) for s_j in s)
        gains = sum(b_j * np.maximum(ratio - x, 0) for b_j, ratio in zip(b, ratios, strict=True))
        return np.asarray(gains - (x - 1) * never)

    high = np.max([-s_j / 2 - epsilons / s_j for s_j in s], axis=0)
    low = -s[0] / 2 - (epsilons - math.log(b[0])) / s[0]
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        rises = slope(middle) > 0
        low, high = np.where(rises, middle, low), np.where(rises, high, middle)
    total = (1 - x) * never * ndtr(low) + binom.sf(most, drawn, 1 / samples)
    for b_j, s_j in zip(b, s, strict=True):
        u = np.minimum(low + s_j, s_j / 2 - epsilons / s_j)
        total += b_j * (ndtr(u) - np.exp(epsilons + log_ndtr(u - s_j)))
    return np.asarray(np.clip(total, 0.0, 1.0), np.float64)


@lru_cache(maxsize=4)
def _losses(multiplier: float, samples: int, drawn: int, rounds: int) -> Any:
    """Return the distribution of the privacy loss of all rounds.

    Neighbours may be exchanged, so that the delta of one round at -epsilon is 1 - (1 - delta) / e^epsilon.
    """
    pld = losses.losses_library()
    ends = np.geomspace(1.0, FARTHEST, ENDS)
    beyond = hockey_stick(ends, multiplier, samples, drawn)
    far = float(ends[np.argmax(np.append(beyond[:-1] <= NEGLIGIBLE, True))])
    step = max(losses.interval(rounds), far / (MOST_LOSSES * math.sqrt(rounds)))
    most = math.ceil(far / step)
    epsilons: Array = step * np.arange(most + 1, dtype=np.float64)
    deltas = hockey_stick(epsilons, multiplier, samples, drawn)
    below = 1 - np.exp(-epsilons[:0:-1]) * (1 - deltas[:0:-1])
    curve = np.minimum.accumulate(np.concatenate([below, deltas]))
    one = pld.pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(step, -most, most, curve)
    with np.errstate(over="ignore"):  # of an order whose tail bound is infinite, and not the least
        return pld.privacy_loss_distribution.PrivacyLossDistribution(one).self_compose(rounds)


def replacement_epsilon(
    C: float, samples: int, drawn: float, rounds: int, sigma: float, delta: float
) -> float:
    """Return an epsilon of a sum in each round over K of n terms of norm at most C, drawn with replacement.

    It is rounded up. InputError says that dp-accounting, which computes it, is not installed.
    """
    return float(_losses(sigma / C, samples, round(drawn), rounds).get_epsilon_for_delta(delta))


def replacement_sigma(
    C: float, samples: int, drawn: float, rounds: int, epsilon: float, delta: float, reserve: float = 0.0
) -> float:
    """Return noise with which `replacement_epsilon` is at most epsilon: see `losses.least_multiplier`."""
    return C * _least_multiplier(samples, drawn, rounds, epsilon, delta, reserve)


@lru_cache(maxsize=32)
def _least_multiplier(
    samples: int, drawn: float, rounds: int, epsilon: float, delta: float, reserve: float
) -> float:
    if rounds > losses.MOST_ROUNDS:
        raise InputError(
            f"{rounds} rounds are too many to be accounted for exactly; give at most "
            f"--rounds {losses.MOST_ROUNDS}"
        )

    def epsilon_of(multiplier: float, delta: float) -> float:
        return replacement_epsilon(1.0, samples, drawn, rounds, multiplier, delta)

    # That of the theorem is far too much, and soon computed with.
    start = with_replacement_epsilon(1.0, samples, drawn, rounds, epsilon, delta) if epsilon else 1.0
    return losses.least_multiplier(epsilon_of, epsilon, delta, reserve, min(start, losses.LARGEST))


@register
@dataclass(frozen=True, kw_only=True)
class ExactReplacement(Subsampled):
    """Each message sums up K of a machine's n samples, drawn with replacement."""

    name, account = "replacement-exact", "the distribution of the privacy loss, which dp-accounting computes"
    least_sigma, epsilon_by = staticmethod(replacement_sigma), staticmethod(replacement_epsilon)
    samples_used = ReplacementReleases.samples_used

    @classmethod
    def accounts_for(cls, messages: Messages) -> bool:
        """Return whether samples are drawn with replacement."""
        return messages.chance == "replacement"

    def out_of_range(self) -> list[str]:
        """Say with which of its numbers nothing can be computed, or no losses can be listed."""
        return super().out_of_range() + losses.out_of_range(self.sigma, self.clip_norm)
