"""Secure aggregation: pairwise masks modulo 2^64 that hide single messages and cancel in their sum.

In every round, one of two neighbours adds the keystream of their shared key to its message, and the other
subtracts it: Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning", 2017.
Neighbours are the k/2 nearest machines on either side of a public random circle. Colluders leave the other
machines connected, but for a probability below 2^-40: Bell et al., "Secure single-server aggregation with
(poly)logarithmic overhead", 2020.
"""

import math
from collections.abc import Iterator
from copy import copy

import numpy as np
from numba import uint32, uint64

from mu2mpi.core.arrays import IntArray, UInt32Array
from mu2mpi.core.errors import InputError
from mu2mpi.core.kernels import aligned_empty, kernel
from mu2mpi.core.memory import available_memory
from mu2mpi.privacy.noise.chacha20 import KEYSTREAM_BLOCKS, fill_keystream
from mu2mpi.privacy.noise.noise_stream import CHUNK_WORDS, derive_key, key_to_uint32

_NONCE_BASE = 0x6D61736B  # first word of the nonce, distinct from those of all other keystreams
STATISTICAL_SECURITY_BITS = 40  # honest machines are disconnected with probability at most 2^-40


def mask_neighbours_per_side(machines: int, colluders: int) -> int:
    """Count the neighbours on one side of the circle that share a mask with a machine.

    Colluders disconnect the others by two runs of this length h, which start at one of M (M - 1) / 2 pairs of
    positions; they hold all of 2 h positions with probability prod over i < 2 h of (c - i) / (M - i).
    """
    log_pairs = math.log2(max(1, machines * (machines - 1) // 2))
    log_probability, half = 0.0, 0
    while True:
        half += 1
        for i in (2 * half - 2, 2 * half - 1):
            if i >= colluders or 2 * half >= machines - 1:
                return half  # too few colluders for two runs, or all other machines are neighbours
            log_probability += math.log2((colluders - i) / (machines - i))
        if log_pairs + log_probability < -STATISTICAL_SECURITY_BITS:
            return half


def mask_edges(machines: int, colluders: int, root_key: bytes) -> IntArray:
    """Pairs of machines that share a mask, smaller index first, shape (edges, 2)."""
    seed = list(derive_key(root_key, "circle"))
    circle = np.random.Generator(np.random.Philox(np.random.SeedSequence(seed))).permutation(machines)
    half = min(mask_neighbours_per_side(machines, colluders), machines // 2)
    pairs = [np.stack([circle, np.roll(circle, -step)], axis=1) for step in range(1, half + 1)]
    sorted_pairs = np.sort(np.concatenate([np.empty((0, 2), np.int64), *pairs]), axis=1)
    # Opposite positions of the circle, and the only two machines, are listed from either side.
    return np.unique(sorted_pairs, axis=0)


def check_mask_edges(machines: int, colluders: int) -> None:
    """Raise InputError if the pairs of machines that share a mask do not fit into memory."""
    pairs = machines * min(mask_neighbours_per_side(machines, colluders), machines // 2)
    # Below a mebibyte, the query for free memory would take longer than it is worth.
    if (needed := 200 * pairs) > 2**20 and needed > available_memory():
        raise InputError(
            f"The {pairs:,} pairs of {machines:,} machines ({colluders:,} colluders) that share a key do not "
            "fit into memory. Use smaller --colluders or --machines, or --masks none (same bits)."
        )


def signed_edges(pairs: IntArray, hosted_machines: range) -> Iterator[tuple[int, int, int]]:
    """Yield (i, j, sign of the mask) for each hosted machine of each pair: sign 1 for i, -1 for j."""
    for i, j in pairs.tolist():
        if i in hosted_machines:
            yield i, j, 1
        if j in hosted_machines:
            yield i, j, -1


def edge_key(root_key: bytes, i: int, j: int) -> UInt32Array:
    """Derive the key that machines i and j share, shape (8,), in place of a key agreement protocol."""
    return key_to_uint32(derive_key(root_key, "edge", f"{i} {j}"))


@kernel
def add_masks(masked, keys, signs, t):  # type: ignore[no-untyped-def]
    """Add (sign 1) or subtract (-1) round t's masks, one per key, modulo 2^64; keys: shape (edges, 8)."""
    keystream = aligned_empty(CHUNK_WORDS).view(np.uint64)
    for chunk in range(masked.size // CHUNK_WORDS):
        masked_chunk = masked[chunk * CHUNK_WORDS : (chunk + 1) * CHUNK_WORDS]
        for n in range(signs.size):
            words, counter = keystream.view(np.uint32), uint32(chunk * KEYSTREAM_BLOCKS)
            fill_keystream(words, keys[n], counter, uint32(_NONCE_BASE), uint32(0), uint32(t))
            for i in range(CHUNK_WORDS):
                masked_chunk[i] += uint64(signs[n]) * keystream[i]


def add_rank_masks(flat_sum: IntArray, key: UInt32Array, nonce: bytes, rank: int, ranks: int) -> None:
    """Add masks to one rank's padded array that cancel in the sum over ranks; use each nonce only once."""
    root_key = derive_key(key.astype("<u4").tobytes(), "parts", nonce.hex())
    previous, following = (rank - 1) % ranks, (rank + 1) % ranks
    keys = np.array([edge_key(root_key, rank, following), edge_key(root_key, previous, rank)], np.uint32)
    add_masks(flat_sum.view(np.uint64), keys, np.array([1, -1]), 0)


class Masks:
    """Masks of a rank's machines; with `includes_internal`, also those that cancel within the rank."""

    def __init__(
        self, machines: int, colluders: int, root_key: bytes, hosted_machines: range, includes_internal: bool
    ) -> None:
        pairs = np.empty((0, 2), np.int64)
        if includes_internal or len(hosted_machines) != machines:
            check_mask_edges(machines, colluders)
            pairs = mask_edges(machines, colluders, root_key)
        is_hosted = (pairs >= hosted_machines.start) & (pairs < hosted_machines.stop)
        if not includes_internal:  # masks of two hosted machines cancel
            pairs = pairs[is_hosted[:, 0] != is_hosted[:, 1]]
        hosted_edges = list(signed_edges(pairs, hosted_machines))
        keys = [edge_key(root_key, i, j) for i, j, _ in hosted_edges]
        self._keys = np.array(keys, np.uint32).reshape(-1, 8)
        self._signs = np.array([sign for *_, sign in hosted_edges], np.int64)
        # Machine that shares each mask, for a rank that hosts one machine
        self.peers = np.array([j if i in hosted_machines else i for i, j, _ in hosted_edges], np.int64)

    def __bool__(self) -> bool:
        return self._signs.size > 0

    def masks_shared_with(self, machine: int) -> "Masks":
        """Masks of this rank that are shared with a given machine of another rank."""
        subset, is_shared = copy(self), self.peers == machine
        subset._keys, subset._signs = self._keys[is_shared], self._signs[is_shared]
        subset.peers = self.peers[is_shared]
        return subset

    def add(self, masked: IntArray, t: int) -> None:
        """Add all masks of round t in place to the sum of the hosted machines' messages, shape (padded,)."""
        add_masks(masked.view(np.uint64), self._keys, self._signs, t)
