"""Transfer of the machines' state between the ranks and rank 0, which writes checkpoints.

Unless the server is central, the state is masked: uniformly random to whoever lacks the noise key.
"""

import os
from typing import NamedTuple

import numpy as np

from mu2mpi.core.arrays import IntArray, UInt32Array
from mu2mpi.core.parallel import Communicator
from mu2mpi.federation.machine import Machines
from mu2mpi.privacy.noise.masks import add_rank_masks
from mu2mpi.privacy.noise.noise_stream import padded_zeros

MaskKey = UInt32Array | None  # noise key shared by all ranks; None for transfers without masks


class IncrementStats(NamedTuple):
    """Largest norm and clipping of the increments so far: private data without noise."""

    largest_squared_norm: float  # before clipping
    clipped_count: int  # number of clipped increments


def reduce_masked(values: IntArray, communicator: Communicator, mask_key: MaskKey) -> IntArray | None:
    """Return on rank 0 the sum over ranks of matrices, such as of their messages q_{t,i}; None elsewhere."""
    flat_sum, masked = padded_zeros(values.shape)
    masked[...] = values
    add_masks(flat_sum, communicator, mask_key)
    return communicator.reduce(masked, np.empty_like(masked))


def gather_increment_stats(
    machines: Machines, communicator: Communicator, mask_key: MaskKey
) -> IncrementStats:
    """Gather increment statistics on rank 0; other ranks get those of hosted machines."""
    own = IncrementStats(machines.largest_squared_norm, machines.clipped_count)
    flat_sum, (message,) = padded_zeros((1, 2))
    message[:] = np.float64(own.largest_squared_norm).view(np.int64), own.clipped_count
    nonce = b"" if mask_key is None else communicator.bcast_object(os.urandom(16))
    if mask_key is not None:
        add_rank_masks(flat_sum, mask_key, nonce + communicator.rank.to_bytes(4, "big"), 0, 2)
    gathered = communicator.gather(flat_sum)
    if gathered is None:
        return own
    for rank, received in enumerate(gathered):
        if mask_key is not None:
            # In a circle of two ranks, the masks of one are minus those of the other.
            add_rank_masks(received, mask_key, nonce + rank.to_bytes(4, "big"), 1, 2)
    squared_norms = [float(received[:1].view(np.float64)[0]) for received in gathered]
    return IncrementStats(max(squared_norms), sum(int(received[1]) for received in gathered))


def add_masks(flat_sum: IntArray, communicator: Communicator, mask_key: MaskKey) -> None:
    """Add this rank's masks, which cancel in the sum over ranks, to a flat array; none without a key."""
    if mask_key is not None:
        nonce = communicator.bcast_object(os.urandom(16))
        add_rank_masks(flat_sum, mask_key, nonce, communicator.rank, communicator.size)
