"""What releases reveal that are about random samples of the data: whoever is often left out is hidden better.

Everything here is about neighbours that differ in one sample, which is replaced, and about sums of vectors
of norm at most C with Gaussian noise. Such releases are no Gaussian mechanisms, and one number rho does not
describe them: what is known is epsilon at a delta.
"""

import math
from functools import lru_cache
from typing import Any

from mu2mpi.errors import InputError

__all__ = [
    "SUBSAMPLED",
    "fewest_drawn",
    "is_covered",
    "poisson_epsilon",
    "poisson_sigma",
    "with_replacement_epsilon",
    "with_replacement_sigma",
]

SUBSAMPLED = ("strong-composition", "pld")
"""Accountants of releases about samples that are drawn at random."""

COARSEST, FINENESS = 1e-3, 0.02
"""Privacy losses are rounded to multiples of the one, or of the other over sqrt(T) if that is less, such that
nothing looks more private than it is. What T rounds add to epsilon grows with T times the square of that."""

ENOUGH = 1e-4
"""How much more noise is added at most, as a share, than losses that are so rounded need."""

LEAST_DELTA = 1e-12
"""Below it, what dp-accounting cuts off and its rounding errors count beside delta."""

LEAST = 2.0**-4
"""Of noise in units of C: with less, losses would be too many to be listed, and hardly anything private."""

DIGITS = 6
"""Of noise that is calibrated, rounded up: fewer than those in which processors and libraries differ."""


def fewest_drawn(samples: int, rounds: int, epsilon: float, delta: float) -> int:
    """Return the smallest K for which the noise of `with_replacement_sigma` is known to suffice.

    References
    ----------
    Lowy and Razaviyayn, "Private federated learning without a trusted server", 2023: Theorem D.2.
    """
    return max(1, math.ceil(epsilon * samples / (4 * math.sqrt(2 * rounds * math.log(2 / delta)))))


def with_replacement_sigma(
    C: float, samples: int, drawn: int, rounds: int, epsilon: float, delta: float, reserve: float = 0.0
) -> float:
    """Return the standard deviation of the noise for the sum of some samples drawn with replacement.

    Parameters
    ----------
    C : float
        Norm that no term of the sum passes.
    samples, drawn, rounds : int
        n, K and R: in each of R rounds, K of n samples are drawn.
    epsilon, delta : float
        What all rounds together are to keep to.
    reserve : float, optional
        Share of both that is left to something else.

    Returns
    -------
    float
        16 C K sqrt(R log(2.5 R / delta) log(2 / delta)) / (n epsilon), K times that for an average.

    Raises
    ------
    InputError
        If epsilon is larger, or fewer samples are drawn, than the theorem speaks of.

    References
    ----------
    Lowy and Razaviyayn, 2023, Theorem D.2: each round is a Gaussian mechanism of sensitivity 2 C / K, which
    sampling makes 2 K / n times as private; then strong composition.
    """
    highest = 2 * math.log(2 / delta)
    if epsilon > highest:
        raise InputError(
            f"epsilon = {epsilon:.4g} is more than the {highest:.4g} that the noise of this method is known "
            f"for at delta = {delta:g}; give a smaller --epsilon or --rho, or rho = inf for no noise"
        )
    fewest = fewest_drawn(samples, rounds, epsilon, delta)
    if drawn < fewest:
        raise InputError(
            f"batch = {drawn} is too small: in {rounds} rounds, the noise of this method is known to suffice "
            f"for at least {fewest} of the {samples} samples of a machine; give --batch {fewest}, or more "
            "--rounds"
        )
    left = 1 - reserve
    return _constant(C, samples, drawn, rounds, left * delta) / (left * epsilon)


def with_replacement_epsilon(
    C: float, samples: int, drawn: int, rounds: int, sigma: float, delta: float
) -> float:
    """Return the epsilon of which this is the sigma, as in `with_replacement_sigma`."""
    return _constant(C, samples, drawn, rounds, delta) / sigma


def is_covered(samples: int, drawn: int, rounds: int, epsilon: float, delta: float) -> bool:
    """Return whether `with_replacement_sigma` knows such an epsilon; rounding errors do not decide."""
    epsilon *= 1 - 1e-9
    return epsilon <= 2 * math.log(2 / delta) and drawn >= fewest_drawn(samples, rounds, epsilon, delta)


def _constant(C: float, samples: int, drawn: int, rounds: int, delta: float) -> float:
    logs = math.log(2.5 * rounds / delta) * math.log(2 / delta)
    return 16 * C * drawn * math.sqrt(rounds * logs) / samples


def poisson_epsilon(C: float, probability: float, rounds: int, sigma: float, delta: float) -> float:
    """Return an epsilon of sums over samples that are each in each of them with the same probability.

    Parameters
    ----------
    C : float
        Norm that no term of a sum passes.
    probability : float
        q, with which each sample is in the sum of each round.
    rounds : int
        T.
    sigma : float
        Standard deviation of the noise for each sum.
    delta : float
        In (0, 1).

    Returns
    -------
    float
        The privacy loss of all rounds together exceeds it as delta allows; rounded up.

    Raises
    ------
    InputError
        If dp-accounting, which computes it, is not installed.

    References
    ----------
    Koskela, Jälkö and Honkela, "Computing tight differential privacy guarantees using FFT", 2020. Doroshenko
    et al., "Connect the dots: tighter discrete approximations of privacy loss distributions", 2022.
    """
    return float(_poisson_losses(sigma / C, probability, rounds).get_epsilon_for_delta(delta))


@lru_cache(maxsize=4)
def _poisson_losses(multiplier: float, probability: float, rounds: int) -> Any:
    """Return the distribution of the privacy loss of all rounds, `multiplier` being sigma / C."""
    distributions, relation = _accounting()
    one = distributions.from_gaussian_mechanism(
        multiplier,
        value_discretization_interval=min(COARSEST, FINENESS / math.sqrt(rounds)),
        sampling_prob=probability,
        neighboring_relation=relation,
    )
    return one.self_compose(rounds)


@lru_cache(maxsize=32)
def poisson_sigma(
    C: float, probability: float, rounds: int, epsilon: float, delta: float, reserve: float = 0.0
) -> float:
    """Return noise with which `poisson_epsilon` is at most epsilon, and a share of 10^-4 less is too little.

    A share of epsilon and delta may be left as a reserve. With small epsilon and many rounds, the rounding of
    losses alone asks for some percent of it or more.

    Raises
    ------
    InputError
        If delta is too small to be computed with, or dp-accounting is not installed.
    """
    if delta < LEAST_DELTA:
        raise InputError(
            f"delta = {delta:g} is too small for the noise of method = dp-sgd to be computed; give at least "
            f"--delta {LEAST_DELTA:g}"
        )

    left = 1 - reserve

    def suffices(multiplier: float) -> bool:
        return poisson_epsilon(1.0, probability, rounds, multiplier, left * delta) <= left * epsilon

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


def _accounting() -> tuple[Any, Any]:
    """Return the module of privacy loss distributions, and the name of replacing a sample in it."""
    try:
        from dp_accounting.pld import privacy_loss_distribution
        from dp_accounting.privacy_accountant import NeighboringRelation
    except ImportError:
        raise InputError(
            "the noise of method = dp-sgd is computed by dp-accounting, which is not installed: "
            "pip install 'mu2mpi[accounting]'"
        ) from None
    return privacy_loss_distribution, NeighboringRelation.REPLACE_ONE
