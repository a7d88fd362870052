"""How Snowball SGD grows its batches, so that the noise of the steps to come hides every sample as well.

An early sample is hidden by all later noise and a late one by little, so late samples share their step with
more others. No step has more noise than its gradients have by themselves: at most C / sqrt(d) in each
coordinate of their average. That settles how large the batches need to be, and then the least noise that
keeps to rho.

References
----------
Feldman, Koren and Talwar, "Private stochastic convex optimization: optimal rates in linear time", 2020.
"""

import math

import numpy as np
from numpy.typing import NDArray

from mu2mpi.privacy.iteration import halving_steps, last_iterate_rho, rounding_slack

__all__ = ["LOOSENESS", "batch_sizes", "most_steps", "noise_of_a_sample"]

LOOSENESS = 1 + 2.0**-10
"""By what the norm C that noise is scaled to exceeds G: rounded gradients keep to it without being clipped.

A clipped gradient may be no gradient of a convex function, and its step no contraction.
"""


def batch_sizes(steps: int, machines: int, d: int, rho: float) -> NDArray[np.int64]:
    """Return how many samples each machine uses in each step.

    Parameters
    ----------
    steps, machines, d : int
        N, M and the number of coordinates.
    rho : float
        Privacy of the last iterate; infinite for no noise.

    Returns
    -------
    ndarray of int64, shape (N,)
        The smallest B_t with 2 C eta_t / (M B_t) <= rho (C / sqrt(d)) sqrt(sum of eta_s^2 over s >= t).
    """
    unit = last_iterate_rho(*[halving_steps(steps)] * 2)
    return np.maximum(1, np.ceil(2 * math.sqrt(d) / (machines * rho) * unit)).astype(np.int64)


def most_steps(samples: int, machines: int, d: int, rho: float) -> int:
    """Return for how many steps the samples of each machine suffice; 0 if not for one."""
    enough, too_many = 0, samples + 1
    while too_many - enough > 1:
        steps = (enough + too_many) // 2
        if batch_sizes(steps, machines, d, rho).sum() <= samples:
            enough = steps
        else:
            too_many = steps
    return enough


def noise_of_a_sample(
    batches: NDArray[np.int64], machines: int, C: float, rho: float, d: int, resolution: float = 0.0
) -> float:
    """Return the standard deviation of the noise of an average gradient, in each coordinate.

    Parameters
    ----------
    batches : ndarray of int64, shape (N,)
        Samples of each machine in each step.
    machines, d : int
        M and the number of coordinates.
    C : float
        Norm that no gradient passes.
    rho : float
        Privacy of the last iterate; infinite for no noise.
    resolution : float, optional
        Spacing of the grid; 0 if nothing is rounded.

    Returns
    -------
    float
        The least with which the last iterate is as private as this for the samples of every step.
    """
    if math.isinf(rho):
        return 0.0
    samples, steps = machines * batches, halving_steps(len(batches))
    slacks = rounding_slack(steps / samples, samples, resolution, d)
    return float(last_iterate_rho(2 * C * steps / samples, steps, slacks).max()) / rho
