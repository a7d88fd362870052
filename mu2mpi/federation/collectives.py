"""Transfer of the machines' state between the ranks and rank 0, which writes checkpoints.

Unless the server is central, what is transferred is masked: uniform to whoever lacks the noise key.
"""

import math
import os
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mu2mpi.core.parallel import Communicator
from mu2mpi.federation.machine import Machines
from mu2mpi.privacy.noise.masks import add_rank_masks
from mu2mpi.privacy.noise.noise_stream import padded_zeros

Integers = NDArray[np.int64]
# Noise key that all ranks share; None where rank 0 alone may have one, and nothing is masked
Key = NDArray[np.uint32] | None


class IncrementCounts(NamedTuple):
    """Statistics of the increments so far, which are computed from private data and have no noise."""

    largest_squared_norm: float  # before clipping
    clipped: int
    classes: Integers  # samples of each class that each machine used, shape (machines, classes)


def gather_sum(machines: Machines, communicator: Communicator, key: Key) -> Integers | None:
    """Return on rank 0 the sum over all machines of q_{t,i}, shape (rows, F), and None elsewhere."""
    flat, part = padded_zeros(machines.q.shape)
    part[...] = machines.q
    if key is not None:
        _mask(flat, communicator, key)
    return communicator.reduce(part, np.empty_like(part))


def scatter_sum(machines: Machines, communicator: Communicator, key: Key) -> None:
    """Turn the sum, which rank 0 holds, into a masked part on every rank: none may send less than before."""
    if key is not None:
        _mask(machines.flat_q, communicator, key)


def gather_counts(machines: Machines, rounds: int, communicator: Communicator, key: Key) -> IncrementCounts:
    """Return the statistics after a number of rounds: on rank 0 of all machines, elsewhere of its own."""
    own = IncrementCounts(machines.largest_squared_norm, machines.clipped, machines.class_counts(rounds))
    flat, (sent,) = padded_zeros((1, own.classes.size + 2))
    sent[0], sent[1] = np.float64(own.largest_squared_norm).view(np.int64), own.clipped
    sent[2:] = own.classes.ravel()
    nonce = b"" if key is None else communicator.share(os.urandom(16))
    if key is not None:
        add_rank_masks(flat, key, nonce + communicator.rank.to_bytes(4, "big"), 0, 2)
    everyones = communicator.gather((flat, own.classes.shape))
    if everyones is None:
        return own
    norms, clipped, classes = [], 0, []
    for rank, (received, shape) in enumerate(everyones):
        if key is not None:
            # In a circle of two ranks, the masks of one are minus those of the other.
            add_rank_masks(received, key, nonce + rank.to_bytes(4, "big"), 1, 2)
        norms.append(float(received[:1].view(np.float64)[0]))
        clipped += int(received[1])
        classes.append(received[2 : 2 + math.prod(shape)].reshape(shape))
    return IncrementCounts(max(norms), clipped, np.concatenate(classes))


def _mask(flat: Integers, communicator: Communicator, key: NDArray[np.uint32]) -> None:
    nonce = communicator.share(os.urandom(16))
    add_rank_masks(flat, key, nonce, communicator.rank, communicator.size)
