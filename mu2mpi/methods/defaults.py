"""How long a method that draws its samples at random runs, and how many it draws, unless told otherwise."""

import math

from mu2mpi.privacy.subsampling import fewest_drawn

__all__ = ["PASSES", "expected_batch", "theorem_batch", "theorem_rounds"]

PASSES = 20
"""How often DP-SGD uses each sample, on average."""

SHARE, FEWEST = 100, 256
"""DP-SGD expects a hundredth of all samples in a batch, but at least so many: noise is shared by a batch, and
beyond some hundred samples larger batches are worth little more than they cost."""


def theorem_rounds(
    *, samples: int, machines: int, d: int, D: float, L: float, G: float, epsilon: float
) -> int:
    """Return the number of rounds R of noisy minibatch SGD.

    Parameters
    ----------
    samples, machines, d : int
        n for each machine, M and the number of coordinates.
    D, L, G : float
        Diameter, smoothness, and the norm that no gradient passes.
    epsilon : float
        Privacy; infinite for no noise.

    Returns
    -------
    int
        (L D sqrt(M) / G) min(sqrt(n), epsilon n / sqrt(d)) + min(n M, epsilon^2 n^2 M / d), rounded up.

    References
    ----------
    Lowy and Razaviyayn, 2023, Theorem D.2.
    """
    smooth = L * D * math.sqrt(machines) / G * min(math.sqrt(samples), epsilon * samples / math.sqrt(d))
    return math.ceil(smooth + min(samples * machines, epsilon**2 * samples**2 * machines / d))


def theorem_batch(samples: int, rounds: int, epsilon: float, delta: float) -> int:
    """Return the number K of samples that each machine draws in a round: no more than the noise needs.

    Without noise that is one.
    """
    return 1 if math.isinf(epsilon) else fewest_drawn(samples, rounds, epsilon, delta)


def expected_batch(samples: int) -> int:
    """Return how many of all samples DP-SGD expects in a round."""
    return min(samples, max(FEWEST, samples // SHARE))
