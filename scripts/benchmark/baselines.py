"""The same workload without this package: plain numpy, and mpi4py with numpy.

A plain loop over machines, with the increment as one outer product and numpy's fastest generator. All
numbers are float64, so sums depend on the number of ranks.
"""

from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.federation.run_constants import RunConstants

Array = NDArray[np.float64]


def softmax(scores: Array) -> Array:
    """Return the probabilities of classes, given their scores."""
    powers = np.exp(scores - scores.max())
    return powers / powers.sum()


def increment(x: Array, x_previous: Array, z: Array, label: int, t: int) -> Array:
    """Return s_{t,i} of a machine with sample z."""
    r, r_previous = softmax(x @ z), softmax(x_previous @ z)
    r[label] -= 1.0
    r_previous[label] -= 1.0
    return np.outer(r + (t - 1) * (r - r_previous), z)


def full_batch_gradient(z: NDArray[np.float32], labels: NDArray[np.int32], machines: int) -> Any:
    """Return the sum of clipped softmax gradients at a model of all samples, machine by machine."""
    x = np.full((10, z.shape[1]), np.float32(0.01))
    total = np.zeros_like(x)
    for features, own in zip(np.array_split(z, machines), np.array_split(labels, machines), strict=True):
        r = np.exp(features @ x.T)
        r /= r.sum(axis=1, keepdims=True)
        r[np.arange(len(own)), own] -= 1
        norms = np.sqrt(np.einsum("ij,ij->i", r, r) * np.einsum("ij,ij->i", features, features))
        r *= np.minimum(1, 10 / norms)[:, np.newaxis]
        total += r.T @ features
    return total


def seconds(
    constants: RunConstants,
    features: NDArray[Any],
    labels: NDArray[np.int32],
    scale: float,
    rounds: int,
    comm: Any = None,
) -> float:
    """Return the seconds of some rounds, on one process or on the ranks of an mpi4py communicator.

    Features, times `scale` in [-1, 1], have shape (rounds, machines of this rank, F - 1), and labels (rounds,
    machines of this rank).
    """
    shape = constants.problem.classes, constants.problem.features
    generator = np.random.Generator(np.random.SFC64(1 + (comm.rank if comm else 0)))
    trusted = constants.problem.server == "trusted"
    q, w, x, x_previous = np.zeros(shape), np.zeros(shape), np.zeros(shape), np.zeros(shape)
    total, z = np.zeros(shape), np.ones(shape[1])
    if comm:
        comm.Barrier()
    started = perf_counter()
    for t in range(1, rounds + 1):
        message = np.zeros(shape)
        for i in range(features.shape[1]):
            z[:-1] = features[t - 1, i] * scale
            q += increment(x, x_previous, z, labels[t - 1, i], t)
            if not trusted:
                message += generator.standard_normal(shape) * constants.mechanism.sigma
        message += q
        if comm and trusted:
            comm.Reduce(message, total, root=0)
        elif comm:
            comm.Allreduce(message, total)
        else:
            total = message
        if not (trusted and comm and comm.rank):
            if trusted:
                total = total + generator.standard_normal(shape) * constants.mechanism.sigma
            w -= constants.eta / constants.problem.machines * total
            norm = np.linalg.norm(w)
            if norm > constants.problem.radius:
                w *= constants.problem.radius / norm
            x_previous, x = x, x + 2 / (t + 2) * (w - x)
        else:
            x_previous, x = x, np.empty(shape)
        if comm and trusted:
            comm.Bcast(x, root=0)
    return perf_counter() - started
