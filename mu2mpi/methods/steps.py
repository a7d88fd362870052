"""How far the server moves: the learning rate that the theory of each method asks for."""

import math
from collections.abc import Callable

from mu2mpi.methods.pieces import Method
from mu2mpi.privacy.iteration import halving_steps

__all__ = ["base_rate", "hidden_rate", "largest_rate", "learning_rate"]

CONTRACTING = 2 * (1 - 2.0**-18)
"""Up to so many times 1 / L steps contract, also where features exceed 1 by what the loader lets pass."""


def largest_rate(method: Method, L: float, rounds: int) -> float:
    """Return the eta of a method that no noise would make smaller."""
    if method.hides_iterates:
        return CONTRACTING / L
    if method.query.averages:
        return 1 / (4 * L * rounds)
    return 1 / (9 * L) if method.estimator.lasts else 1 / L


def base_rate(
    method: Method,
    *,
    rounds: int,
    L: float,
    D: float,
    C: float,
    rho: float,
    d: int,
    machines: int,
    N: float,
    sigma: float,
    size: float,
    owned: int | None = None,
) -> float:
    """Return the eta of a method.

    Parameters
    ----------
    method : Method
        Which one.
    rounds, machines, d : int
        T, M and the number of coordinates.
    L, D, C : float
        Smoothness, diameter, and the norm to which what a sample adds is clipped.
    rho : float
        Privacy of all releases together.
    N : float
        By what the average over machines has less noise than one draw: sqrt(M) or M.
    sigma : float
        Standard deviation of each draw of noise.
    size : float
        How many samples a machine is expected to use in a round.
    owned : int, optional
        How many samples each machine has, where they are drawn from again and again.

    References
    ----------
    Corrected momentum at averages: Theorem 5.2 (untrusted) and 6.2 (trusted) of the paper. The others:
    docs/methods.md, after Cutkosky, "Anytime online-to-batch, optimism and acceleration", 2019; Dekel et al.,
    "Optimal distributed online prediction using mini-batches", 2012; Cutkosky and Orabona, "Momentum-based
    variance reduction in non-convex SGD", 2019.
    """
    T, largest = rounds, largest_rate(method, L, rounds)
    if method.is_mu2:
        return min(rho * D * N / (2 * C * T * math.sqrt(d)), largest)
    if method.estimator.lasts:
        return min(rho * D * N / (2 * C * math.sqrt(d) * math.sqrt(T)), largest)
    # Root of V = C^2 / (M K) + d sigma^2 / (N K)^2.
    error = math.hypot(C / math.sqrt(machines * size), math.sqrt(d) * sigma / (N * size))
    if owned is not None:
        # What steps on the same samples again cost of their use for others.
        error = math.hypot(error, 2 * C * math.sqrt(rounds / (owned * machines)))
    if method.query.averages:
        squares = T * (T + 1) * (2 * T + 1) / 6
        return min(D / (error * math.sqrt(squares)), largest)
    return 1 / (1 / largest + error * math.sqrt(T) / D)


def hidden_rate(*, steps: int, L: float, D: float, C: float, noise: float, d: int) -> float:
    """Return the first learning rate of a method that hides its iterates, of which the last is the output.

    Parameters
    ----------
    steps, d : int
        N and the number of coordinates.
    L, D, C : float
        Smoothness, diameter, and the norm that no gradient passes.
    noise : float
        Standard deviation of each coordinate of the noise of an average gradient.

    References
    ----------
    D / (G sqrt(N)) with E ||g||^2 <= G^2, noise included: Jain, Nagaraj and Netrapalli, "Making the last
    iterate of SGD information theoretically optimal", 2019. At most about 2 / L, up to which steps contract.
    """
    return min(D / (math.hypot(C, math.sqrt(d) * noise) * math.sqrt(steps)), CONTRACTING / L)


def learning_rate(method: Method, eta: float, rounds: int) -> Callable[[int], float]:
    """Return by what the message of round t is multiplied before it moves the iterate, as a function of t.

    The message estimates k_t f'(x_t), and round t counts alpha_t: that is eta alpha_t / k_t. STORM takes
    smaller steps as time goes on, and so does a method whose last iterate has to be good by itself.
    """
    if method.hides_iterates:
        factors = halving_steps(rounds - 1)
        return lambda t: eta * float(factors[t - 1])
    if method.is_mu2:
        return lambda t: eta
    estimator, query = method.estimator, method.query
    if estimator.lasts:
        return lambda t: eta / (estimator.weight(t) * math.sqrt(t + 1))
    return lambda t: eta * query.importance(t)
