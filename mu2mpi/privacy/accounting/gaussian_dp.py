"""From the noise of releases to what they reveal: Renyi DP, (epsilon, delta) and Gaussian DP, both ways.

Neighbours differ in one replaced sample. All releases together are as private as one Gaussian mechanism of
sensitivity rho and standard deviation 1: functions named `exact` go by it, those named `paper` by the paper's
lemma. What they return is rounded to the private side. Without noise rho and epsilon are infinite.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

_UNIT = 2.0**-52  # twice the relative error of one operation on floating-point numbers
UP, _DOWN = 1 + 8 * _UNIT, 1 - 8 * _UNIT  # cover the rounding errors of a formula of a few operations
SMALLEST_DELTA = 1e-300  # shares of it are still floating-point numbers of full precision
# Beyond it, rounding errors hide how far the lemma is from the truth: less than a part in 10^7
_LARGEST_RHO = 1e8
_FAR = 100.0  # beyond so many standard deviations a delta is below e^-5000
# Nodes and weights of Gauss and Legendre's rule with six points on [-1, 1]; each node stands for two
_NODES = 0.9324695142031521, 0.6612093864662645, 0.2386191860831969
_WEIGHTS = 0.1713244923791704, 0.3607615730481386, 0.4679139345726910


class Releases(NamedTuple):
    """So many Gaussian releases with noise sigma, each changed by one sample by at most the sensitivity."""

    sensitivity: float
    sigma: float
    number: int = 1


def rho_of(sequence: Iterable[Releases]) -> float:
    """Return the root of the sum of (sensitivity / sigma)^2, for releases that may depend on those before."""
    rhos = (math.sqrt(number) * moved / sigma if sigma > 0 else math.inf for moved, sigma, number in sequence)
    return math.hypot(*rhos)


def epsilon_paper(rho: float, delta: float) -> float:
    """Return Lemma 2.5's rho^2/2 + rho sqrt(2 log(1/delta)): Mironov, "Renyi differential privacy", 2017."""
    return (rho * rho / 2 + rho * math.sqrt(-2 * math.log(delta))) * UP


def rho_paper(epsilon: float, delta: float) -> float:
    """Return the largest rho of which the paper's lemma says that it is (epsilon, delta)-DP."""
    if math.isinf(epsilon):
        return math.inf
    logs = -2 * math.log(delta)
    return 2 * epsilon / (math.sqrt(logs) + math.sqrt(logs + 2 * epsilon)) * _DOWN


def delta_paper(rho: float, epsilon: float) -> float:
    """Return the smallest delta at which the paper's lemma gives this epsilon; 1 if there is none."""
    if rho == 0 or math.isinf(epsilon):
        return 0.0
    root = epsilon / rho - rho / 2
    if root <= 0:
        return 1.0  # The lemma speaks of delta < 1 alone.
    root = min(root, _FAR)
    return _exp_up(-root * root / 2 + 4 * _UNIT * root * (root + rho))


def gaussian_delta(epsilon: float, rho: float) -> float:
    """Return the smallest delta at which a rho-GDP mechanism is (epsilon, delta)-DP, rounded up."""
    if rho == 0 or math.isinf(epsilon):
        return 0.0
    return 1.0 if math.isinf(rho) else _exp_up(log_delta(epsilon, rho).bound)


def epsilon_exact(rho: float, delta: float) -> float:
    """Return the smallest epsilon at which the releases of a run are (epsilon, delta)-DP, rounded up.

    Dong, Roth and Su, "Gaussian differential privacy", 2022: Corollary 1 and Theorem 4. log delta is a
    concave function of epsilon, so that Newton's method, from what the lemma gives, comes down to the
    solution without ever passing it.
    """
    lemma = epsilon_paper(rho, delta)
    if rho == 0 or rho > _LARGEST_RHO or math.isinf(lemma):
        return lemma
    goal = math.log(delta)
    if log_delta(0.0, rho).bound <= goal:
        return 0.0
    epsilon, lower = math.inf, lemma
    while lower < epsilon * (1 - _UNIT):
        epsilon, at = lower, log_delta(lower, rho)
        lower = max(0.0, epsilon - (at.bound - goal) / at.by_epsilon)
    while (at := log_delta(epsilon, rho)).bound > goal and epsilon < lemma:
        epsilon = min(lemma, epsilon * (1 + _UNIT) - 2 * (at.bound - goal) / at.by_epsilon)
    return epsilon


def rho_exact(epsilon: float, delta: float) -> float:
    """Return the largest rho whose releases are (epsilon, delta)-DP, also by `epsilon_exact`, rounded down.

    log delta is a concave function of rho, too, and Newton's method climbs to the solution.
    """
    lemma = rho_paper(epsilon, delta)
    if lemma > _LARGEST_RHO:
        return lemma
    goal = math.log(delta)
    rho, higher = 0.0, max(lemma, delta * math.sqrt(2 * math.pi) * _DOWN)
    while higher > rho * (1 + _UNIT):
        rho, at = higher, log_delta(epsilon, higher)
        higher = rho - (at.bound - goal) / at.by_rho
    step = _UNIT
    while epsilon_exact(rho, delta) > epsilon:
        rho *= 1 - step
        step *= 2
    return rho


def _exp_up(log: float) -> float:
    """Return e^log, rounded up, and never 0."""
    return max(min(math.exp(min(log, 0.0)) * UP, 1.0), math.ulp(0.0))


class LogDelta(NamedTuple):
    """The logarithm of the exact delta, rounded up, and its derivatives by epsilon and by rho."""

    bound: float
    by_epsilon: float
    by_rho: float


def log_delta(epsilon: float, rho: float) -> LogDelta:
    """Return log delta for delta = Phi(rho/2 - epsilon/rho) - e^epsilon Phi(-rho/2 - epsilon/rho).

    With a, b = epsilon/rho -+ rho/2 and Mills' ratio m(z) = Phi(-z) / phi(z) it is phi(a) (m(a) - m(b)).
    Where these are close, their difference is the integral of -m' = 1 - z m(z) from a to b.
    """
    a, b = epsilon / rho - rho / 2, epsilon / rho + rho / 2
    if a > _FAR:
        # delta < phi(a) m(0) = exp(-a^2 / 2) / 2.
        return LogDelta(-a * a / 2, -a / rho, a * b / rho)
    log_density = -a * a / 2 - math.log(2 * math.pi) / 2
    if rho < 0.5:
        # Half of the smallest number there is, is none.
        log = log_density + math.log(max(_integral(epsilon / rho, rho / 2), math.ulp(0.0)))
    elif a > 0:
        log = log_density + math.log(_mills(a)[0] - _mills(b)[0])
    else:
        log = math.log1p(-math.erfc(-a / math.sqrt(2)) / 2 - math.exp(log_density) * _mills(b)[0])
    density = math.exp(min(log_density - log, 700.0))
    # An error of a, which is some units of b, counts a-fold.
    error = _UNIT * (64 + 4 * abs(a) * b)
    return LogDelta(log + error, -density * _mills(b)[0], density)


def _integral(middle: float, half: float) -> float:
    """Return the integral of 1 - z m(z) over the interval with this middle and half length, below 1/4."""
    heights = (_mills(middle - half * node)[1] + _mills(middle + half * node)[1] for node in _NODES)
    return half * math.fsum(weight * height for weight, height in zip(_WEIGHTS, heights, strict=True))


def _mills(z: float) -> tuple[float, float]:
    """Return m(z) = Phi(-z) / phi(z) and 1 - z m(z), for z > -1."""
    if z < 3.0:
        m = math.sqrt(math.pi / 2) * math.exp(z * z / 2) * math.erfc(z / math.sqrt(2))
        return m, 1 - z * m
    # m(z) = 1 / (z + 1 / (z + 2 / (z + 3 / ...))), and 1 - z m(z) without a difference of equals.
    rest = 0.0
    for k in range(12 + int(500 / (z * z)), 0, -1):
        rest = k / (z + rest)
    return 1 / (z + rest), rest / (z + rest)
