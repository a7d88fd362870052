"""From the noise of releases to what they reveal: Renyi DP, (epsilon, delta) and Gaussian DP, both ways.

Everything here is about neighbours that differ in one sample of one machine, which is replaced. One number
stands for all releases together: they are (a, a rho^2 / 2)-RDP for every order a > 1, and exactly as
private as one Gaussian mechanism of sensitivity rho and standard deviation 1. Functions named `paper` go by
the paper's lemma, those named `exact` by that mechanism. What they return is rounded to the private side.
No rho or epsilon is below 0, and without noise they are infinite; a delta lies in (0, 1).
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

from mu2mpi.privacy.tradeoff import FAR, UNIT, log_delta

UP, DOWN = 1 + 8 * UNIT, 1 - 8 * UNIT
"""Cover the rounding errors of a formula of a few operations."""

LARGEST_RHO = 1e8
"""Beyond it, rounding errors hide how far the lemma is from the truth: less than a part in 10^7."""


class Releases(NamedTuple):
    """So many Gaussian releases with noise sigma, each changed by one sample by at most the sensitivity."""

    sensitivity: float
    sigma: float
    number: int = 1


def rho_of(sequence: Iterable[Releases]) -> float:
    """Return the rho of a sequence of releases, each of which may depend on those before it.

    It is the square root of the sum of (sensitivity / sigma)^2; infinite if one has no noise. In
    Theorems 5.1 and 6.1 of the paper the sensitivity is 2 S; they hold for any sequence of sigma_t.
    """
    return math.hypot(
        *(math.sqrt(number) * moved / sigma if sigma > 0 else math.inf for moved, sigma, number in sequence)
    )


def rho_spent(rho: float, rounds_done: int, touched: int) -> float:
    """Return what part of a run's rho its first rounds spent, with a sigma that is the same in all.

    rho^2 goes with the number of messages in which the sample is of which they tell most: `touched` at most.
    """
    return rho * math.sqrt(min(rounds_done, touched) / touched) if rounds_done else 0.0


def epsilon_paper(rho: float, delta: float) -> float:
    """Return the epsilon that the paper's lemma gives: rho^2 / 2 + rho sqrt(2 log(1 / delta)).

    Lemma 2.5 of the paper, after Mironov, "Renyi differential privacy", 2017.
    """
    return (rho * rho / 2 + rho * math.sqrt(-2 * math.log(delta))) * UP


def rho_paper(epsilon: float, delta: float) -> float:
    """Return the largest rho of which the paper's lemma says that it is (epsilon, delta)-DP."""
    if math.isinf(epsilon):
        return math.inf
    logs = -2 * math.log(delta)
    return 2 * epsilon / (math.sqrt(logs) + math.sqrt(logs + 2 * epsilon)) * DOWN


def delta_paper(rho: float, epsilon: float) -> float:
    """Return the smallest delta at which the paper's lemma gives this epsilon; 1 if there is none."""
    if rho == 0 or math.isinf(epsilon):
        return 0.0
    root = epsilon / rho - rho / 2
    if root <= 0:
        return 1.0  # The lemma speaks of delta < 1 alone.
    root = min(root, FAR)
    return _exp_up(-root * root / 2 + 4 * UNIT * root * (root + rho))


def gaussian_delta(epsilon: float, rho: float) -> float:
    """Return the smallest delta at which a rho-GDP mechanism is (epsilon, delta)-DP, rounded up."""
    if rho == 0 or math.isinf(epsilon):
        return 0.0
    return 1.0 if math.isinf(rho) else _exp_up(log_delta(epsilon, rho).bound)


def epsilon_exact(rho: float, delta: float) -> float:
    """Return the smallest epsilon at which the releases of a run are (epsilon, delta)-DP, rounded up.

    log delta is a concave function of epsilon (delta is the convolution of two log-concave functions), so
    that Newton's method, from what the lemma gives, comes down to the solution without ever passing it.

    References
    ----------
    Dong, Roth and Su, "Gaussian differential privacy", 2022: Corollary 1 and Theorem 4.
    """
    lemma = epsilon_paper(rho, delta)
    if rho == 0 or rho > LARGEST_RHO or math.isinf(lemma):
        return lemma
    goal = math.log(delta)
    if log_delta(0.0, rho).bound <= goal:
        return 0.0
    epsilon, lower = math.inf, lemma
    while lower < epsilon * (1 - UNIT):
        epsilon, at = lower, log_delta(lower, rho)
        lower = max(0.0, epsilon - (at.bound - goal) / at.by_epsilon)
    while (at := log_delta(epsilon, rho)).bound > goal and epsilon < lemma:
        epsilon = min(lemma, epsilon * (1 + UNIT) - 2 * (at.bound - goal) / at.by_epsilon)
    return epsilon


def rho_exact(epsilon: float, delta: float) -> float:
    """Return the largest rho whose releases are (epsilon, delta)-DP, rounded down.

    log delta is a concave function of rho, too (delta is the integral of phi(epsilon/s - s/2) over s from 0
    to rho), and Newton's method climbs to the solution. It starts from what the lemma gives, or from
    delta sqrt(2 pi), which is private even with epsilon = 0.

    ``epsilon_exact(rho, delta)`` is no larger than `epsilon`.
    """
    lemma = rho_paper(epsilon, delta)
    if lemma > LARGEST_RHO:
        return lemma
    goal = math.log(delta)
    rho, higher = 0.0, max(lemma, delta * math.sqrt(2 * math.pi) * DOWN)
    while higher > rho * (1 + UNIT):
        rho, at = higher, log_delta(epsilon, higher)
        higher = rho - (at.bound - goal) / at.by_rho
    step = UNIT
    while epsilon_exact(rho, delta) > epsilon:
        rho *= 1 - step
        step *= 2
    return rho


def _exp_up(log: float) -> float:
    """Return e^log, rounded up, and never 0."""
    return max(min(math.exp(min(log, 0.0)) * UP, 1.0), math.ulp(0.0))
