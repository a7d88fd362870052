"""What the machines of one rank do in a round: compute increments, keep their sum, hide it."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mu2mpi.federation.sampling import users
from mu2mpi.kernels import inline, kernel, round_to_integer
from mu2mpi.methods.schedule import Schedule
from mu2mpi.privacy.noise import AGGREGATE, MACHINE, add_noise, padded_zeros
from mu2mpi.problem.ball import shrinkage, squared_norm
from mu2mpi.problem.logistic import (
    BATCH,
    TILE,
    batch_logits,
    empty_batch,
    load_sample,
    model_logits,
    residual,
    two_logits,
)

__all__ = ["HostedSamples", "Machines", "Supply", "add_gradients", "add_increments"]

LEAST, MOST = 2.0**-500, 2.0**500
"""Squared norms of c and z whose product is a number, and of which no square that counts underflowed."""


@inline
def _add_outer_products(q, c, z):  # type: ignore[no-untyped-def]
    """Add the outer products c_i z_i^T of one sample or of a batch to q, each rounded on its own."""
    if z.shape[0] == 1:
        for k in range(q.shape[0]):
            row = q[k]
            for j in range(row.size):
                row[j] += round_to_integer(c[0, k] * z[0, j])
        return
    for first in range(0, q.shape[1], TILE):
        stop = min(first + TILE, q.shape[1])
        z0, z1, z2, z3 = z[0, first:stop], z[1, first:stop], z[2, first:stop], z[3, first:stop]
        for k in range(q.shape[0]):
            row, c0, c1, c2, c3 = q[k, first:stop], c[0, k], c[1, k], c[2, k], c[3, k]
            for j in range(row.size):
                pair = round_to_integer(c0 * z0[j]) + round_to_integer(c1 * z1[j])
                row[j] += pair + round_to_integer(c2 * z2[j]) + round_to_integer(c3 * z3[j])


@inline
def _clip(c, z, bound, resolution):  # type: ignore[no-untyped-def]
    """Scale c such that c z^T keeps to a norm, and is in units of the grid; make it 0 if its norm is unknown.

    Return the squared norm that c z^T had, and whether it was clipped.
    """
    squared_c, squared_z = squared_norm(c), squared_norm(z)
    squared = squared_c * squared_z
    # Also where squares left the range of floating-point numbers, or c or z holds what is none.
    if not (LEAST <= squared_c <= MOST and LEAST <= squared_z <= MOST):
        c[:] = 0.0
        z[:] = 0.0
        return squared, not squared <= 0.0
    factor = shrinkage(squared, bound)
    for k in range(c.size):
        c[k] *= factor / resolution
    return squared, factor < 1.0


@inline
def _add_clipped(q, c, z, count, bound, resolution):  # type: ignore[no-untyped-def]
    """Add the outer products c_i z_i^T of the first samples of a batch to q, clipped; the others are none.

    Return the largest squared norm before clipping, and how many were clipped.
    """
    largest = 0.0
    clipped = 0
    for i in range(count):
        squared, is_clipped = _clip(c[i], z[i, : q.shape[1]], bound, resolution)
        largest = max(largest, squared)
        clipped += is_clipped
    for i in range(count, c.shape[0]):
        for k in range(c.shape[1]):
            c[i, k] = 0.0
    _add_outer_products(q, c, z)
    return largest, clipped


@kernel
def add_increments(  # type: ignore[no-untyped-def]
    q, x, x_previous, features, labels, scales, bias, first, end, t, bound, resolution, batch
):
    """Add the increments s_{t,i} of some machines, clipped and rounded to the grid, to the sum of q_{t,i}.

    The gradients of a sample z at x_t and x_{t-1} are r z^T and r~ z^T, so its increment is c z^T with
    c = r + (t - 1)(r - r~), and its norm is ||c|| ||z||.

    Parameters
    ----------
    q : ndarray of int64, shape (K, F)
        Sum over the machines of q_{t-1,i} in units of the grid; made that of q_{t,i}.
    x, x_previous : ndarray of float64, shape (K, F)
        The query points x_t and x_{t-1}.
    features : ndarray, shape (samples, F - 1)
        Samples as stored.
    labels : ndarray of int32, shape (samples,)
        Their classes.
    scales : ndarray of float64, shape (samples,)
        Factors that take their stored features to those of z.
    bias : float
        The bias feature.
    first, end : int
        Of them, those from number `first` on and before `end` are used.
    t : int
        The round, from 1.
    bound : float
        Norm to which increments are clipped.
    resolution : float
        Spacing of the grid, a power of two.
    batch : {1, BATCH}
        Samples that are computed together. It decides in which order sums are taken, and so must be the
        same for the same experiment on any number of ranks.

    Returns
    -------
    tuple of float and int
        Largest squared norm of an increment before clipping, and how many were clipped.

    References
    ----------
    Lemma 4.1: q_{t,i} is the sum of s_{tau,i} for tau <= t. Lemma 4.2: ||s_{t,i}|| <= S.
    """
    classes, width = x.shape
    z = empty_batch(batch, width)
    at_x, at_x_previous = np.empty((batch, classes)), np.empty((batch, classes))
    largest = 0.0
    clipped = 0
    for start in range(first, end, batch):
        count = min(batch, end - start)
        for i in range(count):
            load_sample(features[start + i], scales[start + i], bias, z[i])
        if batch == 1:
            two_logits(x, x_previous, z[0, :width], at_x[0], at_x_previous[0])
        else:
            batch_logits(x, x_previous, z, at_x, at_x_previous)
        for i in range(count):
            r, r_previous = at_x[i], at_x_previous[i]
            residual(r, labels[start + i])
            residual(r_previous, labels[start + i])
            for k in range(classes):
                r[k] += (t - 1.0) * (r[k] - r_previous[k])
        squared, number = _add_clipped(q, at_x, z, count, bound, resolution)
        largest = max(largest, squared)
        clipped += number
    return largest, clipped


@kernel
def add_gradients(  # type: ignore[no-untyped-def]
    q, x, features, labels, scales, bias, first, end, bound, resolution, batch
):
    """Add the gradients g_{t,i} at x_t of some samples, clipped and rounded to the grid, to q.

    Parameters and returns are those of `add_increments`, with gradients in place of increments.
    """
    classes, width = x.shape
    z = empty_batch(batch, width)
    logits, of_rest = np.empty((batch, classes)), np.empty((batch, (classes + 1) // 2))
    largest = 0.0
    clipped = 0
    for start in range(first, end, batch):
        count = min(batch, end - start)
        for i in range(count):
            load_sample(features[start + i], scales[start + i], bias, z[i])
        model_logits(x, z, logits, of_rest)
        for i in range(count):
            residual(logits[i], labels[start + i])
        squared, number = _add_clipped(q, logits, z, count, bound, resolution)
        largest = max(largest, squared)
        clipped += number
    return largest, clipped


@dataclass(frozen=True)
class HostedSamples:
    """What the machines that one rank hosts use in some consecutive rounds.

    Attributes
    ----------
    features : ndarray, shape (samples, F - 1)
        Round by round, and in each of them machine by machine, in the stored type.
    labels : ndarray of int32, shape (samples,)
        Their classes.
    scales : ndarray of float64, shape (samples,)
        Factors that take their stored features to those of z.
    sizes : ndarray of int64, shape (rounds, machines)
        Entry ``[k, i]`` is how many of them the rank's i-th machine uses in round ``first_round + k``.
    first_round : int
        The first of the rounds, from 1.
    bias : float
        The bias feature.
    """

    features: NDArray[np.generic]
    labels: NDArray[np.int32]
    scales: NDArray[np.float64]
    sizes: NDArray[np.int64]
    first_round: int = 1
    bias: float = 1.0

    @cached_property
    def rounds(self) -> range:
        """The rounds that these samples are for."""
        return range(self.first_round, self.first_round + len(self.sizes))

    @cached_property
    def _ends(self) -> list[int]:
        # Python's own numbers, which are at hand faster than those of an array.
        return [0, *np.cumsum(self.sizes.sum(axis=1)).tolist()]

    def of(self, t: int) -> tuple[int, int]:
        """Return the numbers of the first sample of one of the rounds, and of the one after its last."""
        k = t - self.first_round
        return self._ends[k], self._ends[k + 1]

    def classes_until(self, t: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return the rank's machine and the class of each sample of the rounds up to t."""
        sizes = self.sizes[: max(0, t + 1 - self.first_round)]
        machines = users(sizes)
        return machines, self.labels[: len(machines)]


MOST_COUNTS = 10_000_000
"""Machines times classes up to which it is counted what each machine gets."""

Supply = Callable[[int], HostedSamples]
"""Returns the samples of a round and of as many after it as are read at once."""

NOTHING = HostedSamples(
    np.empty((0, 0)), np.empty(0, dtype=np.int32), np.empty(0), np.empty((0, 0), dtype=np.int64)
)


class Machines:
    """The machines hosted by one rank.

    Machines first .. first + count - 1 keep one vector together, the sum of their q_{t,i}: whatever
    leaves the rank is a sum over its machines, and sums of integers do not depend on how they are split.

    Parameters
    ----------
    schedule : Schedule
        Constants of the run.
    hosted : range
        Numbers of the hosted machines, from 0.
    supply : callable
        Returns the hosted machines' samples from a given round on.
    key : ndarray of uint32, shape (8,), or None
        Noise key; None where no machine may draw noise.

    Attributes
    ----------
    samples : HostedSamples
        What was read last; nothing before the first round.
    q : ndarray of int64, shape (K, F)
        Sum of the hosted q_{t,i}, not noised, in units of the grid. With plain gradients, the sum of a
        machine's gradients of round t takes the place of q_{t,i}.
    flat_q : ndarray of int64
        The same numbers as `add_noise` takes them.
    largest_squared_norm : float
        Largest squared norm of an increment so far, before clipping.
    clipped : int
        Number of increments clipped so far.
    """

    def __init__(
        self, schedule: Schedule, hosted: range, supply: Supply, key: NDArray[np.uint32] | None
    ) -> None:
        self.schedule = schedule
        self.first, self.count = hosted.start, len(hosted)
        self.samples = NOTHING
        self._supply = supply
        counted = schedule.classes if schedule.machines * schedule.classes <= MOST_COUNTS else 0
        self._class_counts = np.zeros((self.count, counted), dtype=np.int64)
        # Two machines gain less from sharing a batch than they lose by its empty places.
        self._batch = BATCH if schedule.machines > 2 else 1
        self.key = key
        self.flat_q, self.q = padded_zeros((schedule.classes, schedule.features))
        self.largest_squared_norm = 0.0
        self.clipped = 0
        self._flat_noised, self._noised = padded_zeros(self.q.shape)

    def read(self, t: int) -> HostedSamples:
        """Have the samples of round t at hand, and return them with those that were read with them."""
        if t not in self.samples.rounds:
            self._class_counts = self.class_counts(t - 1)
            # What is used up goes before its successor comes, so that memory never holds both.
            self.samples = NOTHING
            self.samples = self._supply(t)
        return self.samples

    def class_counts(self, t: int) -> NDArray[np.int64]:
        """Return how many samples of each class each hosted machine has spent once round t is over.

        Parameters
        ----------
        t : int
            A round for which samples are at hand, or the one before.

        Returns
        -------
        ndarray of int64, shape (machines, K)
            Or (machines, 0) where all machines together have more than `MOST_COUNTS` of them.
        """
        counts = self._class_counts
        if counts.size == 0:
            return counts
        machines, classes = self.samples.classes_until(t)
        places = machines * counts.shape[1] + classes
        return counts + np.bincount(places, minlength=counts.size).reshape(counts.shape)

    def observe(self, t: int, x: NDArray[np.float64], x_previous: NDArray[np.float64]) -> None:
        """Use each machine's samples z_{t,i}: q_{t,i} = q_{t-1,i} + s_{t,i}, or their gradients alone."""
        samples, schedule = self.read(t), self.schedule
        fresh = samples.features, samples.labels, samples.scales, samples.bias, *samples.of(t)
        bound, resolution = schedule.bound, schedule.resolution
        if schedule.method.estimator.lasts:
            largest, clipped = add_increments(
                self.q, x, x_previous, *fresh, t, bound, resolution, self._batch
            )
        else:
            self.q.fill(0)
            largest, clipped = add_gradients(self.q, x, *fresh, bound, resolution, self._batch)
        if largest > self.largest_squared_norm:
            self.largest_squared_norm = largest
        self.clipped += clipped

    def noised(self, t: int) -> NDArray[np.int64]:
        """Return the sum of q~_{t,i} = q_{t,i} + Y_{t,i}, every machine with noise of its own.

        With aggregate noise, the host of the first machine adds a draw for all machines of the run, and
        nobody else adds any. The array is reused by the next call.
        """
        aggregate = self.schedule.aggregate_noise
        if self.schedule.sigma == 0 or self.count == 0 or (aggregate and self.first > 0):
            return self.q
        if self.key is None:
            raise RuntimeError("these machines hold no noise key")
        scale = self.schedule.sigma_of(t) / self.schedule.resolution
        if aggregate:
            scale *= math.sqrt(self.schedule.machines)
            add_noise(self._flat_noised, self.flat_q, self.key, AGGREGATE, 0, 1, t, scale)
            return self._noised
        add_noise(self._flat_noised, self.flat_q, self.key, MACHINE, self.first, self.count, t, scale)
        return self._noised
