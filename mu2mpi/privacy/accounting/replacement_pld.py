"""Privacy loss distribution of one round of samples drawn with replacement, composed over rounds.

What one round tells at most follows from how often a sample is drawn, in the spirit of Balle, Barthe and
Gaboardi, "Privacy amplification by subsampling: tight analyses via couplings and divergences", 2018;
dp-accounting composes it. docs/background/methods.md has the proof.
"""

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.privacy.accounting.pld import interval, losses_library

Array = NDArray[np.float64]

_NEGLIGIBLE = 1e-20  # probability of losses beyond those that are listed, which counts as if all were lost


def hockey_stick(epsilons: Array, multiplier: float, samples: int, drawn: int) -> Array:
    """Return a delta of one round at each epsilon >= 0, `multiplier` being sigma / C.

    With x = e^epsilon, b_j the probability that a sample is drawn j times, s_j = 2 C j / sigma and u_j = s_j
    / 2 - epsilon / s_j it is the largest over t of (1 - x) b_0 Phi(t) + sum over j >= 1 of b_j F_j(min(t +
    s_j, u_j)), where F_j(u) = Phi(u) - x Phi(u - s_j).
    """
    from scipy.special import log_ndtr, ndtr
    from scipy.stats import binom

    most = int(binom.isf(_NEGLIGIBLE, drawn, 1 / samples))
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
    for _ in range(30):
        middle = (low + high) / 2
        rises = slope(middle) > 0
        low, high = np.where(rises, middle, low), np.where(rises, high, middle)
    total = (1 - x) * never * ndtr(low) + binom.sf(most, drawn, 1 / samples)
    for b_j, s_j in zip(b, s, strict=True):
        u = np.minimum(low + s_j, s_j / 2 - epsilons / s_j)
        total += b_j * (ndtr(u) - np.exp(epsilons + log_ndtr(u - s_j)))
    return np.asarray(np.clip(total, 0.0, 1.0), np.float64)


@lru_cache(maxsize=4)
def replacement_losses(multiplier: float, samples: int, drawn: float, rounds: int) -> Any:
    """Return the distribution of the privacy loss of all rounds.

    Neighbours may be exchanged, so that the delta of one round at -epsilon is 1 - (1 - delta) / e^epsilon.
    """
    pld, batch = losses_library(), round(drawn)
    ends = np.geomspace(1.0, 700.0, 31)
    beyond = hockey_stick(ends, multiplier, samples, batch)
    far = float(ends[np.argmax(np.append(beyond[:-1] <= _NEGLIGIBLE, True))])
    # At most 8,000 of a round on either side: large ones may be rounded up by more.
    step = max(interval(rounds), far / (8_000 * math.sqrt(rounds)))
    most = math.ceil(far / step)
    epsilons: Array = step * np.arange(most + 1, dtype=np.float64)
    deltas = hockey_stick(epsilons, multiplier, samples, batch)
    below = 1 - np.exp(-epsilons[:0:-1]) * (1 - deltas[:0:-1])
    curve = np.minimum.accumulate(np.concatenate([below, deltas]))
    one = pld.pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(step, -most, most, curve)
    with np.errstate(over="ignore"):  # of an order whose tail bound is infinite, and not the least
        return pld.privacy_loss_distribution.PrivacyLossDistribution(one).self_compose(rounds)
