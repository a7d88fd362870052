"""Random batches from a ChaCha20 stream, whose nonce holds the machine and the round.

Batches are secret: privacy amplification by subsampling relies on nobody knowing which samples are in them.
"""

import numpy as np
from numba import uint32, uint64

from mu2mpi.core.arrays import IntArray
from mu2mpi.core.kernels import aligned_empty, kernel
from mu2mpi.privacy.noise.chacha20 import BLOCKS, fill_keystream
from mu2mpi.privacy.noise.noise_stream import key_words

CHUNK_SIZE = 8 * BLOCKS  # 64-bit words per call of the keystream
BATCH_STREAM = 0x73616D70  # first word of the nonce, different from those of noise streams


@kernel
def _fill_keystream(keystream, key, chunk, machine, t):  # type: ignore[no-untyped-def]
    """Fill `keystream`, shape (CHUNK_SIZE,), with a chunk of the random words of a machine in round t."""
    words = keystream.view(np.uint32)
    fill_keystream(words, key, uint32(chunk * BLOCKS), uint32(BATCH_STREAM), uint32(machine), uint32(t))


@kernel
def _poisson_indices(key, first, first_round, sizes, n, threshold):  # type: ignore[no-untyped-def]
    keystream = aligned_empty(CHUNK_SIZE).view(np.uint64)
    indices, count = np.empty(4 * CHUNK_SIZE, np.int64), 0
    for row in range(sizes.shape[0]):
        for column in range(sizes.shape[1]):
            before = count
            for start in range(0, n, CHUNK_SIZE):
                _fill_keystream(keystream, key, start // CHUNK_SIZE, first + column, first_round + row)
                if count + CHUNK_SIZE > indices.size:
                    longer = np.empty(2 * indices.size, np.int64)
                    longer[:count] = indices[:count]
                    indices = longer
                for i in range(min(CHUNK_SIZE, n - start)):
                    # Without a branch: the next index overwrites one that is not in the batch.
                    indices[count] = start + i
                    count += keystream[i] < threshold
            sizes[row, column] = count - before
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
def _replacement_indices(key, first, first_round, indices, n, rejected):  # type: ignore[no-untyped-def]
    """Fill `indices` with uniform draws below n; products of words and n below `rejected` are redrawn."""
    keystream = aligned_empty(CHUNK_SIZE).view(np.uint64)
    for row in range(indices.shape[0]):
        for column in range(indices.shape[1]):
            position = 0
            for draw in range(indices.shape[2]):
                accepted = False
                while not accepted:
                    if position % CHUNK_SIZE == 0:
                        chunk = position // CHUNK_SIZE
                        _fill_keystream(keystream, key, chunk, first + column, first_round + row)
                    uniform_bits = keystream[position % CHUNK_SIZE]
                    position += 1
                    accepted = uniform_bits * n >= rejected
                indices[row, column, draw] = _multiply_high(uniform_bits, n)


def sample_poisson_batches(
    key: bytes, machines: range, rounds: range, n: int, threshold: int
) -> tuple[IntArray, IntArray]:
    """Sample Poisson batches of n <= 2^35 samples with probability threshold / 2^64: indices and sizes."""
    sizes = np.empty((len(rounds), len(machines)), np.int64)
    indices = _poisson_indices(key_words(key), machines.start, rounds.start, sizes, n, np.uint64(threshold))
    return indices, sizes


def sample_replacement_batches(key: bytes, machines: range, rounds: range, n: int, K: int) -> IntArray:
    """Sample batches with replacement (Lemire, 2019): indices, shape (rounds, machines, K)."""
    indices = np.empty((len(rounds), len(machines), K), np.int64)
    rejected = np.uint64(2**64 % n)
    _replacement_indices(key_words(key), machines.start, rounds.start, indices, np.uint64(n), rejected)
    return indices


def machine_indices(sizes: IntArray) -> IntArray:
    """Return each sample's machine, as a column index of the batch sizes, shape (rounds, machines)."""
    return np.repeat(np.tile(np.arange(sizes.shape[1]), len(sizes)), sizes.ravel())
