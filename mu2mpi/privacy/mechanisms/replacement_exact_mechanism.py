"""Gaussian mechanism on batches sampled with replacement, accounted for by privacy loss distributions.

The hockey-stick divergence of one round follows from how often a sample is drawn, in the spirit of Balle,
Barthe and Gaboardi, "Privacy amplification by subsampling: tight analyses via couplings and divergences",
2018; dp-accounting composes the rounds. Proof: docs/background/methods.md.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from mu2mpi.core.arrays import FloatArray
from mu2mpi.core.lazy import np
from mu2mpi.core.registry import register
from mu2mpi.privacy.accounting.pld import discretization_interval, import_pld
from mu2mpi.privacy.mechanisms._subsampled import SubsampledMechanism
from mu2mpi.privacy.released_sums import UNIT_SENSITIVITIES

_MAX_TRUNCATED_PROBABILITY = 1e-20  # tail probability counted as delta instead of being listed in the PLD


def hockey_stick(
    epsilons: FloatArray, multiplier: float, samples: int, batch_size: int, neighbours: str = "replace"
) -> FloatArray:
    """Bound the hockey-stick divergence of one round at epsilons >= 0: K draws from n samples.

    `multiplier` is sigma / C. Let x = e^epsilon, and b_j the probability that a sample is drawn j times. Its
    terms then move the sum by at most s_j = j sensitivity / sigma, and r_j = 2 C j / sigma from where other
    samples would have moved it in these draws. With u_j = s_j / 2 - epsilon / s_j the bound is the maximum
    over t of (1 - x) b_0 Phi(t) + sum over j >= 1 of b_j F_j(min(t + r_j, u_j)), where F_j(u) = Phi(u) -
    x Phi(u - s_j).
    """
    from scipy.special import log_ndtr, ndtr
    from scipy.stats import binom

    max_count = int(binom.isf(_MAX_TRUNCATED_PROBABILITY, batch_size, 1 / samples))
    counts = np.arange(1, max_count + 1)
    b = binom.pmf(counts, batch_size, 1 / samples)
    b, r = b[b > 0], 2 * counts[b > 0] / multiplier
    s = r * (UNIT_SENSITIVITIES[neighbours] / 2)
    x, p_never_drawn = np.exp(epsilons), (1 - 1 / samples) ** batch_size

    def divergence_derivative(t: FloatArray) -> FloatArray:
        """Compute d/dt of the divergence, divided by x and the normal density at t: decreasing."""
        gains = np.zeros_like(t)
        for b_j, r_j, s_j in zip(b, r, s, strict=True):
            losses = np.minimum(epsilons + s_j * (t + r_j - s_j / 2), 0)
            gains -= b_j * np.exp(np.minimum(-r_j * (t + r_j / 2) - epsilons, 700)) * np.expm1(losses)
        return gains + np.expm1(-epsilons) * p_never_drawn

    high = np.max([s_j / 2 - r_j - epsilons / s_j for r_j, s_j in zip(r, s, strict=True)], axis=0)
    # Below -40 all but the first term rise, and that is negligible.
    low = np.maximum(s[0] / 2 - r[0] - (epsilons - math.log(b[0])) / s[0], -40.0)
    for _ in range(30):
        middle = (low + high) / 2
        is_rising = divergence_derivative(middle) > 0
        low, high = np.where(is_rising, middle, low), np.where(is_rising, high, middle)
    divergence = (1 - x) * p_never_drawn * ndtr(low) + binom.sf(max_count, batch_size, 1 / samples)
    for b_j, r_j, s_j in zip(b, r, s, strict=True):
        u = np.minimum(low + r_j, s_j / 2 - epsilons / s_j)
        divergence += b_j * (ndtr(u) - np.exp(epsilons + log_ndtr(u - s_j)))
    return np.asarray(np.clip(divergence, 0.0, 1.0), np.float64)


@register
@dataclass(frozen=True, kw_only=True)
class ReplacementExactMechanism(SubsampledMechanism):
    """Gaussian noise in sums over K draws with replacement from n samples, accounted for by PLDs."""

    name, subsampling = "replacement-exact", "replacement"

    @property
    def max_samples_used(self) -> int:
        return self.machines * min(self.samples, round(self.batch_size) * self.rounds)

    @staticmethod
    @lru_cache(maxsize=4)
    def compose_pld(
        neighbours: str, multiplier: float, samples: int, batch_size: float, rounds: int, coarseness: int = 1
    ) -> Any:
        pld, batch = import_pld(), round(batch_size)
        candidates = np.geomspace(1.0, 700.0, 31)
        tails = hockey_stick(candidates, multiplier, samples, batch, neighbours)
        max_loss = float(candidates[np.argmax(np.append(tails[:-1] <= _MAX_TRUNCATED_PROBABILITY, True))])
        # At most 8,000 support points per round and side: large losses are rounded up more coarsely.
        step = max(discretization_interval(rounds), max_loss / (8_000 * math.sqrt(rounds))) * coarseness
        steps = math.ceil(max_loss / step)
        epsilons: FloatArray = step * np.arange(steps + 1, dtype=np.float64)
        deltas = hockey_stick(epsilons, multiplier, samples, batch, neighbours)
        # The bound holds in both directions: delta of one round at -epsilon is 1 - (1 - delta) / e^epsilon.
        negative_side = 1 - np.exp(-epsilons[:0:-1]) * (1 - deltas[:0:-1])
        curve = np.minimum.accumulate(np.concatenate([negative_side, deltas]))
        pmf = pld.pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(step, -steps, steps, curve)
        with np.errstate(over="ignore"):  # tail bounds of some orders overflow; they are not the smallest
            return pld.privacy_loss_distribution.PrivacyLossDistribution(pmf).self_compose(rounds)
