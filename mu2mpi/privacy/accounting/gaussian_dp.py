"""Gaussian differential privacy: composition, and conversion between rho and (epsilon, delta).

rho is the sensitivity / sigma of the Gaussian mechanism that dominates the composition, for one neighbouring
relation: it is rho-GDP, and (a, a rho^2 / 2)-RDP at every order a > 1. Functions named `exact` convert by the
tight GDP formula, those named `paper` by the paper's Lemma 2.5. Results are rounded to the conservative side.
Without noise, rho and epsilon are infinite.
"""

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

_ULP = 2.0**-52  # of 1, machine epsilon: twice the relative error of one floating-point operation
ROUND_UP_FACTOR = 1 + 8 * _ULP  # covers the rounding errors of a formula of a few operations
_ROUND_DOWN_FACTOR = 1 - 8 * _ULP
MIN_DELTA = 1e-300  # fractions of it are still normal floating-point numbers
# Above this rho the lemma is tight to a relative 10^-7, below the rounding errors of the exact formula.
_MAX_EXACT_RHO = 1e8
_MAX_Z_SCORE = 100.0  # standard deviations; a larger z-score means a delta below e^-5000
# Positive nodes of the six-point Gauss-Legendre rule on [-1, 1], and their weights
_GAUSS_NODES = 0.9324695142031521, 0.6612093864662645, 0.2386191860831969
_GAUSS_WEIGHTS = 0.1713244923791704, 0.3607615730481386, 0.4679139345726910


class GaussianEvent(NamedTuple):
    """Gaussian mechanism applied several times: noise std sigma, L2 sensitivity."""

    sensitivity: float
    sigma: float
    repetitions: int = 1


def compose_rho(events: Iterable[GaussianEvent]) -> float:
    """Compute rho of adaptively composed Gaussian mechanisms: root of the sum of (sensitivity / sigma)^2."""
    rhos = (math.sqrt(e.repetitions) * e.sensitivity / e.sigma if e.sigma > 0 else math.inf for e in events)
    return math.hypot(*rhos)


def epsilon_paper(rho: float, delta: float) -> float:
    """Epsilon of rho-GDP by Lemma 2.5, rho^2/2 + rho sqrt(2 log(1/delta)) (Mironov, 2017), rounded up."""
    return (rho * rho / 2 + rho * math.sqrt(-2 * math.log(delta))) * ROUND_UP_FACTOR


def rho_paper(epsilon: float, delta: float) -> float:
    """Largest GDP parameter rho that is (epsilon, delta)-DP by Lemma 2.5 of the paper, rounded down."""
    if math.isinf(epsilon):
        return math.inf
    log_term = -2 * math.log(delta)
    return 2 * epsilon / (math.sqrt(log_term) + math.sqrt(log_term + 2 * epsilon)) * _ROUND_DOWN_FACTOR


def gaussian_delta(epsilon: float, rho: float) -> float:
    """Smallest delta at which a rho-GDP mechanism is (epsilon, delta)-DP, rounded up."""
    if rho == 0 or math.isinf(epsilon):
        return 0.0
    return 1.0 if math.isinf(rho) else _exp_up(log_delta(epsilon, rho).bound)


# Cached because grids are chosen by the epsilons that statements then repeat, of each of many machines.
@lru_cache(maxsize=1 << 15)
def epsilon_exact(rho: float, delta: float) -> float:
    """Smallest epsilon at which a rho-GDP mechanism is (epsilon, delta)-DP, rounded up.

    Dong, Roth and Su, "Gaussian differential privacy", 2022: Corollary 1 and Theorem 4. Newton's method from
    the epsilon of Lemma 2.5 converges monotonically, since log delta is concave in epsilon.
    """
    lemma = epsilon_paper(rho, delta)
    if rho == 0 or rho > _MAX_EXACT_RHO or math.isinf(lemma):
        return lemma
    target_log_delta = math.log(delta)
    if log_delta(0.0, rho).bound <= target_log_delta:
        return 0.0
    epsilon, next_epsilon = math.inf, lemma
    while next_epsilon < epsilon * (1 - _ULP):
        epsilon, log = next_epsilon, log_delta(next_epsilon, rho)
        next_epsilon = max(0.0, epsilon - (log.bound - target_log_delta) / log.d_epsilon)
    while (log := log_delta(epsilon, rho)).bound > target_log_delta and epsilon < lemma:
        epsilon = min(lemma, epsilon * (1 + _ULP) - 2 * (log.bound - target_log_delta) / log.d_epsilon)
    return epsilon


def rho_exact(epsilon: float, delta: float) -> float:
    """Largest GDP parameter rho that is (epsilon, delta)-DP by the exact formula, rounded down."""
    lemma = rho_paper(epsilon, delta)
    if lemma > _MAX_EXACT_RHO:
        return lemma
    target_log_delta = math.log(delta)
    rho, next_rho = 0.0, max(lemma, delta * math.sqrt(2 * math.pi) * _ROUND_DOWN_FACTOR)
    while next_rho > rho * (1 + _ULP):  # Newton's method is monotonic: log delta is concave in rho
        rho, log = next_rho, log_delta(epsilon, next_rho)
        next_rho = rho - (log.bound - target_log_delta) / log.d_rho
    step = _ULP
    while epsilon_exact(rho, delta) > epsilon:
        rho *= 1 - step
        step *= 2
    return rho


def _exp_up(log_probability: float) -> float:
    """Compute the exponential of a log probability, rounded up to a number in (0, 1]."""
    return max(min(math.exp(min(log_probability, 0.0)) * ROUND_UP_FACTOR, 1.0), math.ulp(0.0))


class LogDelta(NamedTuple):
    """Logarithm of the exact delta of rho-GDP at epsilon, and its partial derivatives."""

    bound: float  # log delta, rounded up
    d_epsilon: float
    d_rho: float


def log_delta(epsilon: float, rho: float) -> LogDelta:
    """Log of delta = Phi(rho/2 - epsilon/rho) - e^epsilon Phi(-rho/2 - epsilon/rho), with derivatives.

    With a, b = epsilon/rho -+ rho/2 and Mills' ratio m(z) = Phi(-z) / phi(z), delta = phi(a) (m(a) - m(b)).
    For small rho the difference is computed as the integral of -m' = 1 - z m(z), to avoid cancellation.
    """
    a, b = epsilon / rho - rho / 2, epsilon / rho + rho / 2
    if a > _MAX_Z_SCORE:
        return LogDelta(-a * a / 2, -a / rho, a * b / rho)  # delta < phi(a) m(0) = exp(-a^2 / 2) / 2
    log_density = -a * a / 2 - math.log(2 * math.pi) / 2
    if rho < 0.5:
        integral = _integrate_mills_slope(epsilon / rho, rho / 2)  # can underflow to 0
        log = log_density + math.log(max(integral, math.ulp(0.0)))
    elif a > 0:
        log = log_density + math.log(_mills_ratio(a)[0] - _mills_ratio(b)[0])
    else:
        log = math.log1p(-math.erfc(-a / math.sqrt(2)) / 2 - math.exp(log_density) * _mills_ratio(b)[0])
    density = math.exp(min(log_density - log, 700.0))
    # The rounding error of a, some machine epsilons times b, is multiplied by about a in log delta.
    error = _ULP * (64 + 4 * abs(a) * b)
    return LogDelta(log + error, -density * _mills_ratio(b)[0], density)


def _integrate_mills_slope(midpoint: float, half_width: float) -> float:
    """Integrate 1 - z m(z), m Mills' ratio, over [midpoint - half_width, midpoint + half_width]."""
    offsets = [half_width * node for node in _GAUSS_NODES]
    slopes = (_mills_ratio(midpoint - x)[1] + _mills_ratio(midpoint + x)[1] for x in offsets)
    return half_width * math.fsum(w * slope for w, slope in zip(_GAUSS_WEIGHTS, slopes, strict=True))


def _mills_ratio(z: float) -> tuple[float, float]:
    """Mills' ratio m(z) = Phi(-z) / phi(z) of the standard normal, and 1 - z m(z), for z > -1."""
    if z < 3.0:
        m = math.sqrt(math.pi / 2) * math.exp(z * z / 2) * math.erfc(z / math.sqrt(2))
        return m, 1 - z * m
    # The continued fraction m(z) = 1 / (z + 1 / (z + 2 / ...)) gives 1 - z m(z) without cancellation.
    tail = 0.0
    for k in range(12 + int(500 / (z * z)), 0, -1):
        tail = k / (z + tail)
    return 1 / (z + tail), tail / (z + tail)
