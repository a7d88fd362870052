"""Whether the noise of real messages has its size in every coordinate and message, and none comes twice."""

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from mu2mpi.audit.structure import TAIL_BITS, Fault
from mu2mpi.kernels import kernel
from mu2mpi.privacy.noise import PAIRS

SIGNED = 0, 1, PAIRS
"""Coordinates of a chunk that tell its noise from any other."""

FACTORS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)
"""Odd numbers of 64 random-looking bits."""


@kernel
def add_squares(squares, message, hidden, scale):  # type: ignore[no-untyped-def]
    """Add the squares of a message's noise to those of each coordinate, and return their sum.

    What is sent and what it hides are of shape (K, F), in units of the grid, as is the standard deviation
    `scale` of the noise; `squares`, of shape (K F,), are in units of its variance.
    """
    sent, known = message.ravel(), hidden.ravel()
    total = 0.0
    for i in range(sent.size):
        noise = np.float64(sent[i] - known[i]) / scale
        squares[i] += noise * noise
        total += noise * noise
    return total


def signatures(noise: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return a number for each whole chunk of a message's noise; equal ones come from the same noise."""
    chunks = noise.ravel()[: noise.size // (2 * PAIRS) * 2 * PAIRS].reshape(-1, 2 * PAIRS)
    with np.errstate(over="ignore"):
        found: NDArray[np.uint64] = (chunks[:, SIGNED].astype(np.uint64) * FACTORS).sum(axis=1)
    return found


def size_faults(
    squares: NDArray[np.float64], sums: NDArray[np.float64], repeated: int, pairs: int, risk: float
) -> tuple[Fault, ...]:
    """Say what is wrong with the size of the noise, or with how often some of it was used.

    The sums of squares of each coordinate and of each message are in units of the variance; so many chunks of
    noise are `repeated`, and so many pairs lie in the tail. Faultless noise errs with probability `risk`.
    Sums of n squares of normals are chi-square, whose cube root is nearly normal (Wilson and Hilferty, "The
    distribution of chi-square", 1931). A Poisson count is at most k as often as a chi-square variable of
    2 k + 2 squares exceeds twice its mean.
    """
    d, messages = len(squares), len(sums)
    limit = NormalDist().inv_cdf(1 - risk / (2 * (d + messages + 2)))
    found: list[Fault] = []
    for what, of_each, n in (
        ("", np.array([math.fsum(sums)]), d * messages),
        (" in coordinate", squares, messages),
        (" in message", sums, d),
    ):
        far = _deviations(of_each, n)
        for is_less, worst in ((True, int(far.argmin())), (False, int(far.argmax()))):
            if (-far[worst] if is_less else far[worst]) > limit:
                size, where = math.sqrt(of_each[worst] / n), f"{what} {worst}" if what else ""
                found.append((is_less, f"noise of real messages has {size:.4g} of its deviation{where}"))
    expected = messages * (d // (2 * PAIRS) * PAIRS + max(0, d % (2 * PAIRS) - PAIRS)) * 2.0**-TAIL_BITS
    words = f"the noise has {pairs:,} pairs in its tail where {expected:.4g} are expected"
    mean = np.array([2 * expected])
    if _deviations(mean, 2 * pairs + 2)[0] > limit:
        found.append((True, words))
    if pairs and _deviations(mean, 2 * pairs)[0] < -limit:
        found.append((False, words))
    if repeated:
        found.append((True, f"{repeated:,} chunks of the noise of real messages were used before"))
    return tuple(found)


def _deviations(sums: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """Return how many standard deviations sums of n squares of normals are above what is expected."""
    variance = 2 / (9 * n)
    deviations: NDArray[np.float64] = (np.cbrt(sums / n) - (1 - variance)) / math.sqrt(variance)
    return deviations
