"""Which of its samples a machine draws in a round: by a ChaCha20 stream whose nonce holds machine and round.

That some samples were not used is part of what hides those that were.
"""

import numpy as np
from numba import uint32, uint64
from numpy.typing import NDArray

from mu2mpi.core.kernels import kernel, scratch
from mu2mpi.privacy.noise.chacha20 import BLOCKS, fill_keystream
from mu2mpi.privacy.noise.noise_stream import key_words

WORDS = 8 * BLOCKS  # 64-bit words that one call of the keystream yields
USE = 0x73616D70  # first word of the nonce, unlike those of the noise


@kernel
def _fill_words(words, key, chunk, machine, t):  # type: ignore[no-untyped-def]
    """Fill `words`, shape (WORDS,), with part number `chunk` of what belongs to a machine in a round."""
    fill_keystream(
        words.view(np.uint32), key, uint32(chunk * BLOCKS), uint32(USE), uint32(machine), uint32(t)
    )


@kernel
def _independent(key, first, first_round, sizes, owned, threshold):  # type: ignore[no-untyped-def]
    words = scratch(WORDS).view(np.uint64)
    places, found = np.empty(4 * WORDS, np.int64), 0
    for row in range(sizes.shape[0]):
        for column in range(sizes.shape[1]):
            before = found
            for start in range(0, owned, WORDS):
                _fill_words(words, key, start // WORDS, first + column, first_round + row)
                if found + WORDS > places.size:
                    longer = np.empty(2 * places.size, np.int64)
                    longer[:found] = places[:found]
                    places = longer
                for i in range(min(WORDS, owned - start)):
                    # Overwritten by the next one unless it is chosen.
                    places[found] = start + i
                    found += words[i] < threshold
            sizes[row, column] = found - before
    return places[:found].copy()


@kernel
def _high_word(a, b):  # type: ignore[no-untyped-def]
    """Return the upper 64 bits of a product of two 64-bit words."""
    half, mask = uint64(32), uint64(0xFFFFFFFF)
    a0, a1, b0, b1 = a & mask, a >> half, b & mask, b >> half
    middle = a1 * b0 + (a0 * b0 >> half)
    rest = a0 * b1 + (middle & mask)
    return a1 * b1 + (middle >> half) + (rest >> half)


@kernel
def _uniform(key, first, first_round, places, owned, refused):  # type: ignore[no-untyped-def]
    words = scratch(WORDS).view(np.uint64)
    for row in range(places.shape[0]):
        for column in range(places.shape[1]):
            taken = 0
            for draw in range(places.shape[2]):
                accepted = False
                while not accepted:
                    if taken % WORDS == 0:
                        _fill_words(words, key, taken // WORDS, first + column, first_round + row)
                    word = words[taken % WORDS]
                    taken += 1
                    accepted = word * owned >= refused
                places[row, column, draw] = _high_word(word, owned)


def draw_independently(
    key: bytes, machines: range, rounds: range, owned: int, threshold: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return which samples each machine uses in each round, each with the probability threshold / 2^64.

    Machines and rounds are below 2^32, and samples at most 2^35. Returned are the samples' numbers, round by
    round and in each machine by machine, and how many of them there are, shape (rounds, machines).
    """
    sizes = np.empty((len(rounds), len(machines)), np.int64)
    places = _independent(key_words(key), machines.start, rounds.start, sizes, owned, np.uint64(threshold))
    return places, sizes


def draw_uniformly(key: bytes, machines: range, rounds: range, owned: int, number: int) -> NDArray[np.int64]:
    """Return samples drawn with replacement (Lemire, 2019), shape (rounds, machines, number)."""
    places = np.empty((len(rounds), len(machines), number), np.int64)
    refused = np.uint64(2**64 % owned)
    _uniform(key_words(key), machines.start, rounds.start, places, np.uint64(owned), refused)
    return places


def users(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return whose each sample is, as a number among some machines from 0, given `sizes` as in `Taken`."""
    return np.repeat(np.tile(np.arange(sizes.shape[1]), len(sizes)), sizes.ravel())
