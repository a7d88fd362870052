"""Masks that hide single messages and cancel in their sum: secure aggregation modulo 2^64.

In every round, one of two neighbours adds the keystream of their shared key to its message, and the other
takes it away: Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning", 2017.
Neighbours are the k/2 next on either side of a public random circle, so many that colluders leave the others
connected but for a probability below 2^-40: Bell et al., "Secure single-server aggregation with
(poly)logarithmic overhead", 2020.
"""

import math
from collections.abc import Iterator
from copy import copy

import numpy as np
from numba import uint32, uint64
from numpy.typing import NDArray

from mu2mpi.core.errors import InputError
from mu2mpi.core.kernels import inline, kernel, scratch
from mu2mpi.core.memory import memory_left
from mu2mpi.privacy.noise.chacha20 import BLOCKS, fill_keystream
from mu2mpi.privacy.noise.noise_stream import CHUNK, derive_key, key_words

Integers = NDArray[np.int64]

_USE = 0x6D61736B  # first word of the nonce, unlike those of all other keystreams
FAILURE_BITS = 40  # the others are connected but for a probability of 2^-40


def half_neighbours(machines: int, colluders: int) -> int:
    """Return how many neighbours a machine has on either side of the circle.

    Colluders part the others with two runs of this length h, which begin at one of M (M - 1) / 2 pairs of
    places; that some 2 h given places hold colluders alone has the probability of the product of (c - i) / (M
    - i) over i < 2 h.
    """
    log_pairs = math.log2(max(1, machines * (machines - 1) // 2))
    log_all, half = 0.0, 0
    while True:
        half += 1
        for i in (2 * half - 2, 2 * half - 1):
            if i >= colluders or 2 * half >= machines - 1:
                # There are not so many, or all others are neighbours.
                return half
            log_all += math.log2((colluders - i) / (machines - i))
        if log_pairs + log_all < -FAILURE_BITS:
            return half


def edges(machines: int, colluders: int, root: bytes) -> Integers:
    """Return all pairs of neighbours, the smaller number first, shape (edges, 2); the order is public."""
    seed = list(derive_key(root, "circle"))
    circle = np.random.Generator(np.random.Philox(np.random.SeedSequence(seed))).permutation(machines)
    half = min(half_neighbours(machines, colluders), machines // 2)
    pairs = [np.stack([circle, np.roll(circle, -step)], axis=1) for step in range(1, half + 1)]
    both = np.sort(np.concatenate([np.empty((0, 2), np.int64), *pairs]), axis=1)
    # Opposite places of a circle, or the only two, are found from either side.
    return np.unique(both, axis=0)


def check_pairs(machines: int, colluders: int) -> None:
    """Raise InputError if there are more pairs of neighbours than memory has room for."""
    half = min(half_neighbours(machines, colluders), machines // 2)
    pairs = machines * half
    # Of a mebibyte it would take longer to ask how much memory is left.
    if (needed := 200 * pairs) > 2**20 and needed > memory_left():
        raise InputError(
            f"with c = {colluders:,} of M = {machines:,} machines that may work together with the server, "
            f"each shares a key with {min(2 * half, machines - 1):,} others, and {pairs:,} pairs do not fit "
            "into memory; give smaller --colluders or --machines, or --masks none, which gives the same bits"
        )


def leaving(pairs: Integers, hosted: range) -> Integers:
    """Return the pairs of which one machine alone is hosted: masks of others cancel in the rank's sum."""
    here = (pairs >= hosted.start) & (pairs < hosted.stop)
    found: Integers = pairs[here[:, 0] != here[:, 1]]
    return found


def touching(pairs: Integers, hosted: range) -> Iterator[tuple[int, int, int]]:
    """Yield the pairs of each hosted machine, as the protocol computes them: one by one, with the sign."""
    for i, j in pairs.tolist():
        if i in hosted:
            yield i, j, 1
        if j in hosted:
            yield i, j, -1


def edge_key(root: bytes, i: int, j: int) -> NDArray[np.uint32]:
    """Return the key that two machines share, eight words; in a protocol they agree on it with each other."""
    return key_words(derive_key(root, "edge", f"{i} {j}"))


@inline
def _add_words(masked, words, sign):  # type: ignore[no-untyped-def]
    for i in range(CHUNK):
        masked[i] += sign * words[i]


@kernel
def add_masks(masked, keys, signs, t):  # type: ignore[no-untyped-def]
    """Add masks of edges by keys (edges, 8) in round t modulo 2^64, or take them away by signs of -1."""
    words = scratch(CHUNK).view(np.uint64)
    for chunk in range(masked.size // CHUNK):
        part = masked[chunk * CHUNK : (chunk + 1) * CHUNK]
        for n in range(signs.size):
            counter = uint32(chunk * BLOCKS)
            fill_keystream(words.view(np.uint32), keys[n], counter, uint32(_USE), uint32(0), uint32(t))
            _add_words(part, words, uint64(signs[n]))


def add_rank_masks(flat: Integers, key: NDArray[np.uint32], nonce: bytes, rank: int, ranks: int) -> None:
    """Add masks to one rank's array, as of `padded_zeros`, that cancel in the sum over all ranks modulo 2^64.

    Neighbours on the circle of ranks share a keystream. The nonce is for one array alone.
    """
    root = derive_key(key.astype("<u4").tobytes(), "parts", nonce.hex())
    before, after = (rank - 1) % ranks, (rank + 1) % ranks
    keys = np.array([edge_key(root, rank, after), edge_key(root, before, rank)], np.uint32)
    add_masks(flat.view(np.uint64), keys, np.array([1, -1]), 0)


class Masks:
    """The masks of the machines of a rank: `every` one, or those alone that do not cancel within it.

    Of a rank with one machine, `others` are the machines with which it shares each.
    """

    def __init__(self, machines: int, colluders: int, root: bytes, hosted: range, every: bool) -> None:
        alone = not every and len(hosted) == machines
        if not alone:
            check_pairs(machines, colluders)
        pairs = np.empty((0, 2), np.int64) if alone else edges(machines, colluders, root)
        if not every:
            pairs = leaving(pairs, hosted)
        mine = list(touching(pairs, hosted))
        self._keys = np.array([edge_key(root, i, j) for i, j, _ in mine], np.uint32).reshape(-1, 8)
        self._signs = np.array([sign for *_, sign in mine], np.int64)
        self.others = np.array([j if i in hosted else i for i, j, _ in mine], np.int64)

    def __bool__(self) -> bool:
        return self._signs.size > 0

    def shared_with(self, machine: int) -> "Masks":
        """Return those alone that another machine, on another rank, knows as well."""
        found, known = copy(self), self.others == machine
        found._keys, found._signs, found.others = self._keys[known], self._signs[known], self.others[known]
        return found

    def add(self, masked: Integers, t: int) -> None:
        """Mask the sum of what the hosted machines send in round t, shape (padded,)."""
        add_masks(masked.view(np.uint64), self._keys, self._signs, t)
