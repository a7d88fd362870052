"""The same workload without this package: plain numpy, and mpi4py with numpy.

Written as one would write it: a loop over machines, the increment as one outer product, and numpy's
fastest generator. Everything is in float64, so that sums depend on the number of ranks.
"""

from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.federation.run_constants import RunConstants

Array = NDArray[np.float64]


def softmax(scores: Array) -> Array:
    """Return the probabilities that belong to the scores of the classes."""
    powers = np.exp(scores - scores.max())
    return powers / powers.sum()


def increment(x: Array, x_previous: Array, z: Array, label: int, t: int) -> Array:
    """Return s_{t,i} of a machine with sample z."""
    r, r_previous = softmax(x @ z), softmax(x_previous @ z)
    r[label] -= 1.0
    r_previous[label] -= 1.0
    return np.outer(r + (t - 1) * (r - r_previous), z)


def seconds(
    constants: RunConstants,
    features: NDArray[Any],
    labels: NDArray[np.int32],
    scale: float,
    rounds: int,
    comm: Any = None,
) -> float:
    """Return the time that some rounds take, on one process or on the ranks of an mpi4py communicator.

    Features, which `scale` takes into [-1, 1], have the shape (rounds, machines of this rank, F - 1), labels
    (rounds, machines of this rank).
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
