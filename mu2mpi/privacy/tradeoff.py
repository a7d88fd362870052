"""The exact trade-off between epsilon and delta of one Gaussian mechanism, in logarithms."""

import math
from typing import NamedTuple

UNIT = 2.0**-52
"""Twice the relative error of one operation on floating-point numbers."""

LOG_ROOT_2_PI = math.log(2 * math.pi) / 2

FAR, LARGEST_EXPONENT = 100.0, 700.0
"""Beyond so many standard deviations a delta is below e^-5000; this, and little higher powers of e, are no
floating-point numbers."""

SMALL_RHO, TAIL = 0.5, 3.0
"""Below this rho, differences of Mills ratios are integrals; from here on a ratio is a continued fraction."""

NODES = (
    (0.9324695142031521, 0.1713244923791704),
    (0.6612093864662645, 0.3607615730481386),
    (0.2386191860831969, 0.4679139345726910),
)
"""Nodes and weights of Gauss and Legendre's rule with six points on [-1, 1]; each node stands for two."""


class LogDelta(NamedTuple):
    """The logarithm of the exact delta, rounded up, and its derivatives by epsilon and by rho."""

    bound: float
    by_epsilon: float
    by_rho: float


def log_delta(epsilon: float, rho: float) -> LogDelta:
    """Return log delta for delta = Phi(rho/2 - epsilon/rho) - e^epsilon Phi(-rho/2 - epsilon/rho).

    Let a and b be epsilon/rho -+ rho/2, and m(z) = Phi(-z) / phi(z) Mills' ratio. As b^2 - a^2 = 2 epsilon,
    both terms have the factor phi(a): delta = phi(a) (m(a) - m(b)). Where m(a) and m(b) are close, their
    difference is the integral of -m' = 1 - z m(z) from a to b.
    """
    a, b = epsilon / rho - rho / 2, epsilon / rho + rho / 2
    if a > FAR:
        # delta < phi(a) m(0) = exp(-a^2 / 2) / 2.
        return LogDelta(-a * a / 2, -a / rho, a * b / rho)
    log_density = -a * a / 2 - LOG_ROOT_2_PI
    if rho < SMALL_RHO:
        # Half of the smallest number there is, is none.
        log = log_density + math.log(max(_integral(epsilon / rho, rho / 2), math.ulp(0.0)))
    elif a > 0:
        log = log_density + math.log(_mills(a)[0] - _mills(b)[0])
    else:
        log = math.log1p(-math.erfc(-a / math.sqrt(2)) / 2 - math.exp(log_density) * _mills(b)[0])
    density = math.exp(min(log_density - log, LARGEST_EXPONENT))
    # An error of a, which is some units of b, counts a-fold.
    error = UNIT * (64 + 4 * abs(a) * b)
    return LogDelta(log + error, -density * _mills(b)[0], density)


def _integral(middle: float, half: float) -> float:
    """Return the integral of 1 - z m(z) over the interval with this middle and half length, below 1/4."""
    pairs = [
        weight * (_mills(middle - half * node)[1] + _mills(middle + half * node)[1]) for node, weight in NODES
    ]
    return half * math.fsum(pairs)


def _mills(z: float) -> tuple[float, float]:
    """Return m(z) = Phi(-z) / phi(z) and 1 - z m(z), for z > -1."""
    if z < TAIL:
        m = math.sqrt(math.pi / 2) * math.exp(z * z / 2) * math.erfc(z / math.sqrt(2))
        return m, 1 - z * m
    # m(z) = 1 / (z + 1 / (z + 2 / (z + 3 / ...))), and 1 - z m(z) without a difference of equals.
    rest = 0.0
    for k in range(12 + int(500 / (z * z)), 0, -1):
        rest = k / (z + rest)
    return 1 / (z + rest), rest / (z + rest)
