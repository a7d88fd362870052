"""What the last iterate of noisy gradient steps reveals, where nobody sees the iterates before it.

A sample moves the iterate in one step alone. From then on, every step adds noise of its own and takes two
iterates no farther apart than they were, so that an early sample is hidden by the noise of all later steps.
docs/methods.md has the proof, which holds for Gaussian differential privacy, and thus at every Renyi order:
after Feldman, Mironov, Talwar and Thakurta, "Privacy amplification by iteration", 2018, and Bok, Su and
Altschuler, "Shifted interpolation for differential privacy", 2024.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Counts = NDArray[np.int64]

ARITHMETIC = 2.0**-12
"""Share of rho for errors of floating-point numbers, to which `mu2mpi.federation.landing` holds them."""

LANDING = 2**12
"""Spacing of the grid on which the last step is taken, in units of that of its sum. The iterate can be so far
away, measured in the noise of that step, that a finer grid would not fit into integers."""

LARGEST_BATCH = 2.0**40
"""Growth beyond all data sets ends here."""


@lru_cache(maxsize=8)
def halving_steps(steps: int) -> Array:
    """Return learning rates in units of the first, shape (N,), with which the last iterate of SGD is good.

    2^-i for N - ceil(N / 2^i) < t <= N - ceil(N / 2^(i + 1)), and for the last of the N >= 1 steps too. It is
    then as good as the average of all, up to a constant: Jain, Nagaraj and Netrapalli, "Making the last
    iterate of SGD information theoretically optimal", 2019.
    """
    # After the last halving ceil(N / 2^i) stays 1, which is the last step.
    left = -(-steps >> np.arange((steps - 1).bit_length() + 1))
    lengths = np.append(left[:-1] - left[1:], 1)
    rates = np.repeat(0.5 ** np.arange(len(lengths)), lengths)
    rates.flags.writeable = False
    return rates


def growing_batches(steps: int, growth: float) -> Counts:
    """Return how many samples each machine uses in each of N steps, so that all are hidden about as well.

    The integers from growth * eta_t / sqrt(sum of eta_s^2 over s >= t) up, at least 1: the last batch is
    about `growth`, and others are smaller by what the noise of all steps from theirs on hides better.
    """
    eta = halving_steps(steps)
    wanted = np.ceil(growth * last_iterate_rho(eta, eta))
    return np.clip(wanted, 1.0, LARGEST_BATCH).astype(np.int64)


def last_iterate_rho(moves: Array, deviations: Array, slacks: Array | float = 0.0) -> Array:
    """Return for each step the rho of the last iterate, as it protects the samples of that step; shape (N,).

    Another sample in a step moves the iterate by at most `moves` before noise, of which each coordinate has a
    standard deviation of `deviations`; and a step takes two iterates by at most `slacks` farther apart than
    exact steps do. They are brought together by the noise of this step and all that follow: what the sample
    moved in shares that go with the variance of the noise, and what rounding adds where it arises.
    """

    def from_here_on(squares: Array) -> Array:
        return np.sqrt(np.cumsum(squares[::-1])[::-1])

    if not np.all(deviations > 0):
        return np.full(len(moves), np.inf)
    return moves / from_here_on(deviations**2) + from_here_on((slacks / deviations) ** 2)


def rounding_slack(scales: Array, samples: Counts, resolution: float, d: int) -> Array:
    """Return how much farther apart than exact steps the grid lets each step of a run take two iterates.

    A step is a sum of gradients, one for each of its samples, times its scale. In each of the two, every
    coordinate of a gradient and of a draw of noise is rounded by at most half the resolution, and the iterate
    before the last step to the coarser grid on which that step is taken.
    """
    noise_before = np.append(0.0, scales[:-1])
    iterate = np.zeros(len(scales))
    iterate[-1] = LANDING * scales[-1]
    slack: Array = resolution * np.sqrt(d) * (scales * samples + noise_before + iterate)
    return slack


def hidden_rho(batches: Counts, machines: int, C: float, noise: float, resolution: float, d: int) -> Array:
    """Return `last_iterate_rho` of a run, with what is set aside for floating-point numbers.

    No gradient passes the norm C, so that another sample moves a sum of them by 2 C at most; `noise` is the
    standard deviation of each coordinate of the noise of an average gradient, to which all is in inverse
    proportion. Nothing is rounded if the resolution is 0.
    """
    eta, samples = halving_steps(len(batches)), machines * batches
    scales = eta / samples
    slacks = rounding_slack(scales, samples, resolution, d)
    rho: Array = last_iterate_rho(2 * C * scales, eta * noise, slacks)
    return rho + ARITHMETIC * float(rho.max())
