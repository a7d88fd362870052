"""What the machines of one rank do in a round: compute increments, keep their sum, hide it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mu2mpi.algorithm.schedule import Schedule
from mu2mpi.compiled import kernel, round_to_integer
from mu2mpi.privacy.noise import MACHINE, add_noise
from mu2mpi.problem.ball import shrinkage, squared_norm
from mu2mpi.problem.logistic import load_sample, residual, two_logits

__all__ = ["HostedSamples", "Machines", "add_increments"]


@kernel
def add_increments(q, x, x_previous, features, labels, scale, t, bound, resolution):  # type: ignore[no-untyped-def]
    """Add the increments s_{t,i} of some machines, clipped and rounded to the grid, to the sum of q_{t,i}.

    The gradients of a sample z at x_t and x_{t-1} are r z^T and r~ z^T, so its increment is c z^T with
    c = r + (t - 1)(r - r~), and its norm is ||c|| ||z||.

    Parameters
    ----------
    q : ndarray of int64, shape (K, F)
        Sum over the machines of q_{t-1,i} in units of the grid; made that of q_{t,i}.
    x, x_previous : ndarray of float64, shape (K, F)
        The query points x_t and x_{t-1}.
    features : ndarray, shape (machines, F - 1)
        The sample of each machine in this round, as stored.
    labels : ndarray of int32, shape (machines,)
        Their classes.
    scale : float
        Factor that takes stored features into [-1, 1].
    t : int
        The round, from 1.
    bound : float
        Norm to which increments are clipped.
    resolution : float
        Spacing of the grid, a power of two.

    Returns
    -------
    tuple of float and int
        Largest squared norm of an increment before clipping, and how many were clipped.

    References
    ----------
    Lemma 4.1: q_{t,i} is the sum of s_{tau,i} for tau <= t. Lemma 4.2: ||s_{t,i}|| <= S.
    """
    z = np.empty(x.shape[1])
    r = np.empty(x.shape[0])
    r_previous = np.empty(x.shape[0])
    largest = 0.0
    clipped = 0
    for i in range(labels.size):
        load_sample(features[i], scale, z)
        two_logits(x, x_previous, z, r, r_previous)
        residual(r, labels[i])
        residual(r_previous, labels[i])
        for k in range(r.size):
            r[k] += (t - 1.0) * (r[k] - r_previous[k])
        squared = squared_norm(r) * squared_norm(z)
        factor = shrinkage(squared, bound)
        largest = max(largest, squared)
        clipped += factor < 1.0
        for k in range(r.size):
            c = r[k] * factor / resolution
            for j in range(z.size):
                q[k, j] += round_to_integer(c * z[j])
    return largest, clipped


@dataclass(frozen=True)
class HostedSamples:
    """The samples of the machines that one rank hosts, in the order of use.

    Attributes
    ----------
    features : ndarray, shape (T, machines, F - 1)
        Row ``[t - 1, i]`` is what the rank's i-th machine uses in round t, in the stored type.
    labels : ndarray of int32, shape (T, machines)
        Their classes.
    scale : float
        Factor that takes stored features into [-1, 1].
    """

    features: NDArray[np.generic]
    labels: NDArray[np.int32]
    scale: float


class Machines:
    """The machines hosted by one rank.

    Machines first .. first + count - 1 keep one vector together, the sum of their q_{t,i}: whatever
    leaves the rank is a sum over its machines, and sums of integers do not depend on how they are split.

    Parameters
    ----------
    schedule : Schedule
        Constants of the run.
    first : int
        Number of the first hosted machine, from 0.
    samples : HostedSamples
        What the hosted machines own.
    key : ndarray of uint32, shape (8,), or None
        Noise key; None where no machine may draw noise.

    Attributes
    ----------
    q : ndarray of int64, shape (K, F)
        Sum of the hosted q_{t,i}, not noised, in units of the grid.
    largest_squared_norm : float
        Largest squared norm of an increment so far, before clipping.
    clipped : int
        Number of increments clipped so far.
    """

    def __init__(
        self, schedule: Schedule, first: int, samples: HostedSamples, key: NDArray[np.uint32] | None
    ) -> None:
        self.schedule = schedule
        self.first = first
        self.count = samples.labels.shape[1]
        self.samples = samples
        self.key = key
        self.q = np.zeros((schedule.classes, schedule.features), dtype=np.int64)
        self.largest_squared_norm = 0.0
        self.clipped = 0
        self._noised = np.empty_like(self.q)

    def observe(self, t: int, x: NDArray[np.float64], x_previous: NDArray[np.float64]) -> None:
        """Spend each machine's sample z_{t,i}: q_{t,i} = q_{t-1,i} + s_{t,i}."""
        samples, schedule = self.samples, self.schedule
        largest, clipped = add_increments(
            self.q,
            x,
            x_previous,
            samples.features[t - 1],
            samples.labels[t - 1],
            samples.scale,
            t,
            schedule.bound,
            schedule.resolution,
        )
        self.largest_squared_norm = max(self.largest_squared_norm, largest)
        self.clipped += clipped

    def noised(self, t: int) -> NDArray[np.int64]:
        """Return the sum of q~_{t,i} = q_{t,i} + Y_{t,i}, every machine with noise of its own.

        The array is reused by the next call.
        """
        if self.schedule.sigma == 0:
            return self.q
        if self.key is None:
            raise RuntimeError("these machines hold no noise key")
        scale = self.schedule.sigma / self.schedule.resolution
        add_noise(self._noised.ravel(), self.q.ravel(), self.key, MACHINE, self.first, self.count, t, scale)
        return self._noised
