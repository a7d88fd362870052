"""Gaussian noise in sums over random samples, each in each of them with the same probability.

Who is often left out is hidden better: Abadi et al., "Deep learning with differential privacy", 2016. Such
releases are no Gaussian mechanisms: epsilon at a delta follows from the distribution of the privacy loss.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from mu2mpi.errors import InputError
from mu2mpi.privacy.mechanisms.base import Subsampled
from mu2mpi.registry import register

COARSEST, FINENESS = 1e-3, 0.02
"""Privacy losses are rounded to multiples of the one, or of the other over sqrt(T) if that is less, such that
nothing looks more private than it is. What T rounds add to epsilon grows with T times the square of that."""

ENOUGH, DIGITS = 1e-4, 6
"""How much more noise is added at most, as a share, than losses that are so rounded need; and to how many
digits noise is rounded up: fewer than those in which processors and libraries differ."""

LEAST_DELTA, LEAST = 1e-12, 2.0**-4
"""Below this delta, what dp-accounting cuts off and its rounding errors count beside it. With less noise, in
units of C, losses would be too many to be listed, and hardly anything private."""

LARGEST = 2.0**100
"""Of it: with more, squares leave the range of floating-point numbers."""


def poisson_epsilon(C: float, samples: int, drawn: float, rounds: int, sigma: float, delta: float) -> float:
    """Return an epsilon of a sum in each round, of n terms of norm at most C, each there with a chance K / n.

    The privacy loss of all rounds together exceeds it as delta allows; it is rounded up. InputError says that
    dp-accounting, which computes it, is not installed. After Koskela, Jälkö and Honkela, "Computing tight
    differential privacy guarantees using FFT", 2020, and Doroshenko et al., "Connect the dots: tighter
    discrete approximations of privacy loss distributions", 2022.
    """
    return float(_poisson_losses(sigma / C, drawn / samples, rounds).get_epsilon_for_delta(delta))


@lru_cache(maxsize=4)
def _poisson_losses(multiplier: float, probability: float, rounds: int) -> Any:
    """Return the distribution of the privacy loss of all rounds, `multiplier` being sigma / C."""
    try:
        from dp_accounting.pld import privacy_loss_distribution as pld
        from dp_accounting.privacy_accountant import NeighboringRelation
    except ImportError:
        raise InputError(
            "the noise for samples drawn at random is computed by dp-accounting, which is not installed: "
            "pip install 'mu2mpi[accounting]'"
        ) from None
    one = pld.from_gaussian_mechanism(
        multiplier,
        value_discretization_interval=min(COARSEST, FINENESS / math.sqrt(rounds)),
        sampling_prob=probability,
        neighboring_relation=NeighboringRelation.REPLACE_ONE,
    )
    return one.self_compose(rounds)


@lru_cache(maxsize=32)
def poisson_sigma(
    C: float, samples: int, drawn: float, rounds: int, epsilon: float, delta: float, reserve: float = 0.0
) -> float:
    """Return noise with which `poisson_epsilon` is at most epsilon, and a share of 10^-4 less is too little.

    A share of epsilon and delta may be left as a reserve. With small epsilon and many rounds, the rounding of
    losses alone asks for some percent of it or more. Raises InputError if delta is too small.
    """
    if delta < LEAST_DELTA:
        raise InputError(
            f"delta = {delta:g} is too small for the distribution of the privacy loss to be computed; give "
            f"at least delta = {LEAST_DELTA:g}"
        )
    left = 1 - reserve

    def suffices(multiplier: float) -> bool:
        return poisson_epsilon(1.0, samples, drawn, rounds, multiplier, left * delta) <= left * epsilon

    high = 1.0
    while not suffices(high):
        high *= 2
    while high > LEAST and suffices(high / 2):
        high /= 2
    low = high / 2 if high > LEAST else high
    while high > low * (1 + ENOUGH):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if suffices(middle) else (middle, high)
    multiplier = _rounded_up(high)
    # What rounding of losses costs is no smooth function of the noise: a little more can do a little worse.
    while not suffices(multiplier):
        multiplier = _rounded_up(multiplier * (1 + ENOUGH))
    return C * multiplier


def _rounded_up(value: float) -> float:
    """Return a number of few digits that is no smaller."""
    unit = 10.0 ** (math.floor(math.log10(value)) + 1 - DIGITS)
    return math.ceil(value / unit) * unit


@register
@dataclass(frozen=True, kw_only=True)
class PoissonReleases(Subsampled):
    """Of each of its n samples, a machine decides by itself: it is drawn with the probability drawn / n."""

    name, account = "poisson", "the distribution of the privacy loss, which dp-accounting computes"
    least_sigma, epsilon_by = staticmethod(poisson_sigma), staticmethod(poisson_epsilon)

    def out_of_range(self) -> list[str]:
        """Say with which of its numbers nothing can be computed, or no losses can be listed."""
        found = super().out_of_range()
        if self.drawn > self.samples:
            found.append(f"drawn = {self.drawn!r} is more than samples = {self.samples:,}")
        if self.is_noisy and not LEAST * self.clip_norm <= self.sigma <= LARGEST * self.clip_norm:
            found.append(
                f"no epsilon is computed for sigma = {self.sigma!r} beside clip_norm = {self.clip_norm!r}"
            )
        return found
