"""Random batches from a ChaCha20 stream, whose nonce holds the machine and the round.

Batches are secret: privacy amplification by subsampling relies on nobody knowing which samples are in them.
"""

import numpy as np
from numba import uint32, uint64

from mu2mpi.core.arrays import IntArray
from mu2mpi.core.kernels import aligned_empty, kernel
from mu2mpi.privacy.noise.chacha20 import KEYSTREAM_BLOCKS, fill_keystream
from mu2mpi.privacy.noise.noise_stream import CHUNK_WORDS, key_to_uint32

BATCH_NONCE_WORD = 0x73616D70  # first word of the nonce, different from those of noise streams


@kernel
def _fill_keystream(keystream, key, chunk, machine, t):  # type: ignore[no-untyped-def]
    """Fill `keystream`, shape (CHUNK_WORDS,), with a chunk of random words of a machine in round t."""
    nonce, counter = (uint32(BATCH_NONCE_WORD), uint32(machine), uint32(t)), uint32(chunk * KEYSTREAM_BLOCKS)
    fill_keystream(keystream.view(np.uint32), key, counter, *nonce)


@kernel
def _poisson_indices(key, machines, rounds, sizes, n, inclusion_threshold):  # type: ignore[no-untyped-def]
    keystream = aligned_empty(CHUNK_WORDS, np.uint64)
    indices, count = np.empty(4 * CHUNK_WORDS, np.int64), 0
    for batch in range(sizes.size):
        before = count
        for start in range(0, n, CHUNK_WORDS):
            _fill_keystream(keystream, key, start // CHUNK_WORDS, machines[batch], rounds[batch])
            if count + CHUNK_WORDS > indices.size:
                longer = np.empty(2 * indices.size, np.int64)
                longer[:count] = indices[:count]
                indices = longer
            for i in range(min(CHUNK_WORDS, n - start)):
                # Without a branch: the next index overwrites one that is not in the batch.
                indices[count] = start + i
                count += keystream[i] < inclusion_threshold
        sizes[batch] = count - before
    return indices[:count].copy()


@kernel
def _multiply_high(a, b):  # type: ignore[no-untyped-def]
    """Return the upper 64 bits of a product of two 64-bit words."""
    half, mask = uint64(32), uint64(0xFFFFFFFF)
    a0, a1, b0, b1 = a & mask, a >> half, b & mask, b >> half
    middle = a1 * b0 + (a0 * b0 >> half)
    rest = a0 * b1 + (middle & mask)
    return a1 * b1 + (middle >> half) + (rest >> half)


@kernel
def _replacement_indices(key, machines, rounds, indices, n, rejection_threshold):  # type: ignore[no-untyped-def]
    """Fill `indices` with uniform integers below n; a word whose product with n is too small is redrawn."""
    keystream = aligned_empty(CHUNK_WORDS, np.uint64)
    for batch in range(indices.shape[0]):
        position = 0
        for draw in range(indices.shape[1]):
            accepted = False
            while not accepted:
                if position % CHUNK_WORDS == 0:
                    chunk = position // CHUNK_WORDS
                    _fill_keystream(keystream, key, chunk, machines[batch], rounds[batch])
                uniform_bits = keystream[position % CHUNK_WORDS]
                position += 1
                accepted = uniform_bits * n >= rejection_threshold
            indices[batch, draw] = _multiply_high(uniform_bits, n)


def sample_poisson_batches(
    key: bytes, machines: IntArray, rounds: IntArray, n: int, inclusion_threshold: int
) -> tuple[IntArray, IntArray]:
    """Sample Poisson batches of n <= 2^35 samples with probability threshold / 2^64: indices and sizes."""
    sizes = np.empty_like(rounds)
    threshold = np.uint64(inclusion_threshold)
    return _poisson_indices(key_to_uint32(key), machines, rounds, sizes, n, threshold), sizes


def sample_replacement_batches(
    key: bytes, machines: IntArray, rounds: IntArray, n: int, size: int
) -> IntArray:
    """Sample batches with replacement (Lemire, 2019): indices, shape (batches, size)."""
    indices = np.empty((len(rounds), size), np.int64)
    _replacement_indices(key_to_uint32(key), machines, rounds, indices, np.uint64(n), np.uint64(2**64 % n))
    return indices
