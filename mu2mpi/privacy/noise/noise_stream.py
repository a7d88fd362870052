"""Gaussian noise as a function of (key, who, round, coordinate): no state, the same on any rank.

ChaCha20 is keyed by the noise key; its nonce holds who draws and in which round, its counter the coordinate.
In each chunk of 256, words i and 128 + i make normals i and 128 + i. Any draw can be recomputed, so that a
restarted run sends the same messages again. How far draws, rounded to integers, are from exact ones is for
`mu2mpi.privacy.noise.sampler_error` to say.
"""

import hashlib
import math

import numpy as np
from numba import int64, uint32, uint64
from numpy.typing import NDArray

from mu2mpi.core.errors import InputError
from mu2mpi.core.kernels import aligned_zeros, float_to_bits, inline, kernel, round_to_integer, scratch
from mu2mpi.privacy.noise.box_muller import FEWEST_BITS, normal_pair, split, split_word, squared_radius
from mu2mpi.privacy.noise.chacha20 import BLOCKS, fill_keystream
from mu2mpi.privacy.noise.sampler_error import FINEST, SPREAD_BITS

MACHINE, SERVER, AGGREGATE = 0, 1, 2  # first word of the nonce: whose noise it is
# Added to the first word of the nonce, so many times `_LEVEL`: 0 for the words of a draw, 1 .. `MOST_FURTHER`
# for those that continue small words, and `_SPREAD` for those that spread a draw on a fine grid.
_LEVEL, MOST_FURTHER, _SPREAD = 16, 15, 16
# The bits of a little less than the smallest squared radius of a small word: -2 log 2^-20 = 27.73
_LARGE_SQUARE = int(np.float64(27.7).view(np.int64))
# The counter of blocks, and the words of the nonce for machine and round, have 32 bits each
_MAX_COORDINATES, MAX_NUMBER = 2**35, 2**32 - 1

PAIRS = 4 * BLOCKS
CHUNK = 2 * PAIRS  # normals, and 64-bit words, that one call of the keystream yields


@inline
def fill_pairs(words, further, squares, values, offsets, bits, key, chunk, who, number, t):  # type: ignore[no-untyped-def]
    """Fill a chunk's words, and turn the first half of them into squared radii.

    In one loop, so that the keystream is compiled once: offsets, words, further words for small ones.
    """
    level = _SPREAD if bits >= 0 else 0
    while True:
        halves = (words if level == 0 else further).view(np.uint32)
        nonce = uint32(who + _LEVEL * level)
        fill_keystream(halves, key, uint32(chunk * BLOCKS), nonce, uint32(number), uint32(t))
        if level == _SPREAD:
            _fill_offsets(offsets, further, bits)
            level = 0
        elif level == 0:
            if not _fill_squares(squares, values, words):
                break
            level = 1
        elif not _redo_small(squares, values, words, further, level) or level == MOST_FURTHER:
            break
        else:
            level += 1


@inline
def _fill_squares(squares, values, words):  # type: ignore[no-untyped-def]
    """Compute the squared radii of all pairs; return whether some words are small, and prepare for these."""
    most = int64(0)
    for i in range(PAIRS):
        squares[i], values[i] = split_word(words[i])
    for i in range(PAIRS):
        squares[i] = squared_radius(squares[i], values[i])
        most = max(most, float_to_bits(squares[i]))
    if most < int64(_LARGE_SQUARE):
        return False
    for i in range(PAIRS):
        values[i] = np.float64(words[i])
    return True


@inline
def _redo_small(squares, values, words, further, level):  # type: ignore[no-untyped-def]
    """Continue small words with further ones, and return whether some are still small."""
    small = False
    for i in range(PAIRS):
        if values[i] < 2.0**FEWEST_BITS:
            values[i] = values[i] * 2.0**64 + np.float64(further[i])
            e, v = split(max(values[i], 1.0), 64.0 * (level + 1))
            squares[i] = squared_radius(e, v)
            small = small or values[i] < 2.0**FEWEST_BITS
    return small


@inline
def spreading_bits(scale, finest):  # type: ignore[no-untyped-def]
    """Return over 2^(bits + 1) units of the grid a draw of this deviation is spread, or -1 for none."""
    return math.frexp(scale)[1] - SPREAD_BITS - 2 if scale > finest else -1


@inline
def _add_offsets(noised, offsets, sign):  # type: ignore[no-untyped-def]
    for i in range(CHUNK):
        noised[i] += sign * offsets[i]


@inline
def _fill_offsets(offsets, words, bits):  # type: ignore[no-untyped-def]
    """Turn words into uniform integers from -2^bits to 2^bits - 1, which spread a draw."""
    for i in range(CHUNK):
        offsets[i] = int64(words[i] >> uint64(63 - bits)) - (int64(1) << bits)


@inline
def _add_draw(noised, message, squares, words, scale):  # type: ignore[no-untyped-def]
    for i in range(PAIRS):
        g, h = normal_pair(squares[i], words[PAIRS + i])
        noised[i] = message[i] + round_to_integer(scale * g)
        noised[PAIRS + i] = message[PAIRS + i] + round_to_integer(scale * h)


@inline
def _add_another_draw(noised, squares, words, scale):  # type: ignore[no-untyped-def]
    for i in range(PAIRS):
        g, h = normal_pair(squares[i], words[PAIRS + i])
        noised[i] += round_to_integer(scale * g)
        noised[PAIRS + i] += round_to_integer(scale * h)


def padded_zeros(shape: tuple[int, int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return zeros, padded to whole chunks as `add_noise` takes them, and a view of the first in a shape."""
    d = math.prod(shape)
    flat = aligned_zeros((-(-d // CHUNK) * CHUNK,), np.int64)
    return flat, flat[:d].reshape(shape)


@kernel
def add_noise(noised, message, key, who, first, count, t, scale):  # type: ignore[no-untyped-def]
    """Set ``noised`` to ``message`` plus the rounded noise of some machines, or of the server, in round t.

    Both come from `padded_zeros`, in units of the grid, and do not overlap. The draws of machines ``first ..
    first + count - 1`` are added, each rounded by itself, with a standard deviation of `scale` units. Beyond
    `FINEST`, where the errors of 64-bit numbers would count beside a unit, each number gets a uniform
    integer: errors then have to cross the edge of a wide interval to matter. To the exact mechanism it is
    post-processing.
    """
    words, further = scratch(CHUNK).view(np.uint64), scratch(CHUNK).view(np.uint64)
    squares, values, offsets = scratch(PAIRS), scratch(PAIRS), scratch(CHUNK).view(np.int64)
    bits = spreading_bits(scale, FINEST)
    for chunk in range(message.size // CHUNK):
        part = slice(chunk * CHUNK, (chunk + 1) * CHUNK)
        for machine in range(first, first + count):
            fill_pairs(words, further, squares, values, offsets, bits, key, chunk, who, machine, t)
            if machine == first:
                _add_draw(noised[part], message[part], squares, words, scale)
            else:
                _add_another_draw(noised[part], squares, words, scale)
            if bits >= 0:
                _add_offsets(noised[part], offsets, 1)


@kernel
def add_draws(noise, key, machines, numbers, scales, finests, sign):  # type: ignore[no-untyped-def]
    """Add (sign = 1) or take away (-1) draws of machines from ``noise``, each rounded as in `add_noise`.

    The number of each draw stands for the round there, and it is spread beyond its own `finests`.
    """
    words, further = scratch(CHUNK).view(np.uint64), scratch(CHUNK).view(np.uint64)
    squares, values, offsets = scratch(PAIRS), scratch(PAIRS), scratch(CHUNK).view(np.int64)
    for chunk in range(noise.size // CHUNK):
        part = noise[chunk * CHUNK : (chunk + 1) * CHUNK]
        for n in range(machines.size):
            bits = spreading_bits(scales[n], finests[n])
            fill_pairs(
                words, further, squares, values, offsets, bits, key, chunk, MACHINE, machines[n], numbers[n]
            )
            # Rounding is to the nearest even number, which knows no sign.
            _add_another_draw(part, squares, words, sign * scales[n])
            if bits >= 0:
                _add_offsets(part, offsets, sign)


@kernel
def _fill_normals(out, key, who, number, t):  # type: ignore[no-untyped-def]
    words, further = scratch(CHUNK).view(np.uint64), scratch(CHUNK).view(np.uint64)
    squares, values = scratch(PAIRS), scratch(PAIRS)
    for chunk in range(out.size // CHUNK):
        fill_pairs(words, further, squares, values, words.view(np.int64), -1, key, chunk, who, number, t)
        part = out[chunk * CHUNK : (chunk + 1) * CHUNK]
        for i in range(PAIRS):
            g, h = normal_pair(squares[i], words[PAIRS + i])
            part[i] = g
            part[PAIRS + i] = h


def standard_normal(key: NDArray[np.uint32], who: int, number: int, t: int, d: int) -> NDArray[np.float64]:
    """Return one draw of d numbers before it is scaled and rounded; `number` is that of a machine, or 0."""
    out = np.empty(-(-d // CHUNK) * CHUNK)
    _fill_normals(out, key, who, number, t)
    return out[:d]


def check_numbers(d: int, machines: int, rounds: int) -> None:
    """Raise InputError if the stream has no numbers for so many coordinates, machines or rounds."""
    if d > _MAX_COORDINATES or max(machines, rounds) > MAX_NUMBER:
        raise InputError(
            f"{d} coordinates, {machines} machines and {rounds} rounds are more than the noise has numbers "
            f"for: at most {_MAX_COORDINATES}, {MAX_NUMBER} and {MAX_NUMBER}"
        )


def root_key(seed: int) -> bytes:
    """Return the 32-byte key from which everything random in a seeded run follows."""
    return hashlib.blake2b(seed.to_bytes(8, "little"), digest_size=32, person=b"mu2mpi seed").digest()


def derive_key(root: bytes, purpose: str, context: str = "") -> bytes:
    """Return the 32-byte key for a purpose in a context; different keys tell nothing of each other."""
    return hashlib.blake2b(context.encode(), key=root, digest_size=32, person=purpose.encode()).digest()


def key_words(key: bytes) -> NDArray[np.uint32]:
    """Return a 32-byte key as the eight little-endian words that the kernels take."""
    return np.frombuffer(key, dtype="<u4").astype(np.uint32)
