"""From the noise of a run to what its releases reveal: Renyi DP, (epsilon, delta), Gaussian DP."""

import math
from dataclasses import dataclass

__all__ = ["PrivacyStatement", "epsilon_exact", "epsilon_paper", "gaussian_delta", "rho_spent"]

ROUNDING = 64 * 2.0**-52
"""Relative error that the terms of `gaussian_delta` may have."""


@dataclass(frozen=True)
class PrivacyStatement:
    """The guarantee of one run, with everything that is needed to recompute it.

    Neighbouring data sets differ in one sample of one machine, which is replaced.

    Attributes
    ----------
    server : str
        ``"untrusted"``: the guarantee holds for everything that leaves a machine, {q~_{t,i}};
        ``"trusted"``: for everything that leaves the server, {x_t}.
    rho : float
        The releases are (a, a rho^2 / 2)-RDP for every order a > 1; infinite without noise.
    delta, epsilon, epsilon_exact : float
        (epsilon, delta)-DP by the paper's lemma, and the smallest epsilon that holds at this delta.
    S : float
        The bound G + 2LD on the norm of an increment.
    clip_norm : float
        The norm to which increments are clipped; the sensitivity of every sum is twice this.
    sigma : float
        Standard deviation of each coordinate of each draw of noise, for the sum over machines.
    resolution : float
        Spacing of the grid on which messages lie.
    noise_recomputable : bool
        Whether the noise follows from a seed that is written down, so that nothing is hidden from
        whoever knows it.
    adjacency : str
        Always ``"replace-one"``.
    noise : str
        ``"protocol"``; or ``"aggregate"`` if the noise of all machines was drawn as one: then this is the
        guarantee of the protocol that was simulated, and not of the messages that were sent.
    """

    server: str
    rho: float
    delta: float
    epsilon: float
    epsilon_exact: float
    S: float
    clip_norm: float
    sigma: float
    resolution: float
    noise_recomputable: bool
    adjacency: str = "replace-one"
    noise: str = "protocol"


def rho_spent(rho: float, rounds_done: int, rounds: int) -> float:
    """Return the rho of the first releases of a run whose noise has the same sigma in every round.

    Parameters
    ----------
    rho : float
        The rho of the whole run.
    rounds_done, rounds : int
        Rounds whose messages were sent, and all rounds T.

    References
    ----------
    Theorems 5.1 and 6.1: rho^2 is proportional to the sum of 1 / sigma_t^2 over the rounds.
    """
    return rho * math.sqrt(rounds_done / rounds) if rounds_done else 0.0


def epsilon_paper(rho: float, delta: float) -> float:
    """Return the epsilon that the paper's lemma gives: rho^2 / 2 + rho sqrt(2 log(1 / delta)).

    References
    ----------
    Lemma 2.5 of the paper, after Mironov, "Renyi differential privacy", 2017.
    """
    return rho * rho / 2 + rho * math.sqrt(-2 * math.log(delta))


def gaussian_delta(epsilon: float, rho: float) -> float:
    """Return the smallest delta at which a rho-GDP mechanism is (epsilon, delta)-DP, rounded up.

    delta = Phi(rho/2 - epsilon/rho) - e^epsilon Phi(-rho/2 - epsilon/rho). Both terms share the factor
    exp(-a^2/2) with a = epsilon/rho - rho/2, which is taken out so that neither leaves the range of
    floating-point numbers. The rounding errors of their difference are added to it.

    Parameters
    ----------
    epsilon : float
        At least 0.
    rho : float
        Positive and finite.
    """
    a = (epsilon / rho - rho / 2) / math.sqrt(2)
    b = (epsilon / rho + rho / 2) / math.sqrt(2)
    shared = math.exp(-a * a)
    first = shared * _scaled_erfc(a) / 2 if a > 0 else math.erfc(a) / 2
    second = shared * _scaled_erfc(b) / 2
    return first - second + ROUNDING * first


def _scaled_erfc(z: float) -> float:
    """Return exp(z^2) erfc(z) for z >= 0, by a continued fraction where erfc itself would underflow."""
    if z < 5:
        return math.exp(z * z) * math.erfc(z)
    fraction = z
    for k in range(60, 0, -1):
        fraction = z + k / 2 / fraction
    return 1 / (math.sqrt(math.pi) * fraction)


def epsilon_exact(rho: float, delta: float) -> float:
    """Return the smallest epsilon at which the releases of a run are (epsilon, delta)-DP, rounded up.

    The releases are an adaptive composition of Gaussian mechanisms with the sum of Delta^2 / sigma_t^2
    equal to rho^2, which is exactly as private as one Gaussian mechanism with Delta / sigma = rho.

    References
    ----------
    Dong, Roth and Su, "Gaussian differential privacy", 2022: Corollary 1 and Theorem 4.
    """
    low, high = 0.0, epsilon_paper(rho, delta)
    if math.isinf(high) or rho == 0:
        return high
    if gaussian_delta(low, rho) <= delta:
        return 0.0
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if gaussian_delta(middle, rho) <= delta:
            high = middle
        else:
            low = middle
    return high
