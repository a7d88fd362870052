"""Gaussian noise as a stateless function of (key, stream, machine, round, coordinate), the same on any rank.

ChaCha20 is keyed by the noise key; its nonce holds stream, machine and round, its counter the coordinate. In
each chunk of 256, words i and 128 + i make normals i and 128 + i. Any draw can be recomputed, so that a
resumed run sends the same messages again. `mu2mpi.privacy.noise.sampler_error` bounds the error of rounded
draws.
"""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numba import int64, uint32, uint64

from mu2mpi.core.arrays import IntArray, UInt32Array
from mu2mpi.core.errors import InputError
from mu2mpi.core.kernels import aligned_empty, aligned_zeros, float_to_bits, inline, kernel, round_to_integer
from mu2mpi.privacy.noise.box_muller import (
    MIN_UNIFORM_BITS,
    exponent_and_fraction,
    normal_pair,
    split_float,
    squared_radius,
)
from mu2mpi.privacy.noise.chacha20 import KEYSTREAM_BLOCKS, fill_keystream
from mu2mpi.privacy.noise.sampler_error import DITHER_BITS, DITHER_THRESHOLD

Key = UInt32Array  # shape (8,)
StreamRange = tuple[int, int, int]  # noise stream, first machine and number of machines

# Noise streams: first word of the nonce
MACHINE_STREAM = 0  # each machine's own noise
SERVER_STREAM = 1  # the trusted server's noise
AGGREGATE_STREAM = 2  # one draw in place of all machines' noise
# The first word of the nonce is the stream + _NONCE_LEVEL_STEP * level. Level 0 has the words of a draw;
# levels to MAX_UNIFORM_EXTENSIONS extend small words, and that of _DITHER_NONCE_LEVEL dithers a draw.
_NONCE_LEVEL_STEP = 16
MAX_UNIFORM_EXTENSIONS = 15
_DITHER_NONCE_LEVEL = 16
# Bits of a number just below the smallest squared radius of a small word, -2 log 2^-20 = 27.73
_RADIUS_THRESHOLD_BITS = int(np.float64(27.7).view(np.int64))
_MAX_COORDINATES = 2**35  # the block counter has 32 bits
MAX_STREAM_INDEX = 2**32 - 1  # largest machine or round in a nonce, whose words have 32 bits

CHUNK_PAIRS = 4 * KEYSTREAM_BLOCKS
CHUNK_WORDS = 2 * CHUNK_PAIRS  # normals, and 64-bit words, per call of the keystream


@inline
def allocate_chunk_arrays():  # type: ignore[no-untyped-def]
    """Allocate the arrays that `fill_normal_pairs` fills: its first five arguments."""
    words = aligned_empty(CHUNK_WORDS, np.uint64), aligned_empty(CHUNK_WORDS, np.uint64)
    dither = aligned_empty(CHUNK_WORDS, np.int64)
    return *words, aligned_empty(CHUNK_PAIRS), aligned_empty(CHUNK_PAIRS), dither


@inline
def fill_normal_pairs(  # type: ignore[no-untyped-def]
    keystream, extension, squared_radii, uniforms, dither, bits, key, chunk, stream, machine, t
):
    """Fill ``keystream`` with random 64-bit words, and compute the squared radii of Box-Muller pairs."""
    # One loop generates dither, words, and an extension of small ones, so that ChaCha20 is compiled once.
    level = _DITHER_NONCE_LEVEL if bits >= 0 else 0
    while True:
        halves = (keystream if level == 0 else extension).view(np.uint32)
        nonce = uint32(stream + _NONCE_LEVEL_STEP * level)
        fill_keystream(halves, key, uint32(chunk * KEYSTREAM_BLOCKS), nonce, uint32(machine), uint32(t))
        if level == _DITHER_NONCE_LEVEL:
            _fill_dither(dither, extension, bits)
            level = 0
        elif level == 0:
            if not _fill_squared_radii(squared_radii, uniforms, keystream):
                break
            level = 1
        else:
            any_small = _extend_small_uniforms(squared_radii, uniforms, keystream, extension, level)
            if not any_small or level == MAX_UNIFORM_EXTENSIONS:
                break
            level += 1


@inline
def _fill_squared_radii(squared_radii, uniforms, keystream):  # type: ignore[no-untyped-def]
    """Compute the squared radii of all Box-Muller pairs; return whether some words need extra words."""
    largest = int64(0)
    for i in range(CHUNK_PAIRS):
        squared_radii[i], uniforms[i] = exponent_and_fraction(keystream[i])
    for i in range(CHUNK_PAIRS):
        squared_radii[i] = squared_radius(squared_radii[i], uniforms[i])
        largest = max(largest, float_to_bits(squared_radii[i]))
    if largest < int64(_RADIUS_THRESHOLD_BITS):
        return False
    for i in range(CHUNK_PAIRS):
        uniforms[i] = np.float64(keystream[i])
    return True


@inline
def _extend_small_uniforms(squared_radii, uniforms, keystream, extension, level):  # type: ignore[no-untyped-def]
    any_small = False
    for i in range(CHUNK_PAIRS):
        if uniforms[i] < 2.0**MIN_UNIFORM_BITS:
            uniforms[i] = uniforms[i] * 2.0**64 + np.float64(extension[i])
            e, v = split_float(max(uniforms[i], 1.0), 64.0 * (level + 1))
            squared_radii[i] = squared_radius(e, v)
            any_small = any_small or uniforms[i] < 2.0**MIN_UNIFORM_BITS
    return any_small


@inline
def dither_bits(std_units, dither_threshold):  # type: ignore[no-untyped-def]
    """Bits b of the dither, which is uniform over 2^(b + 1) integers; -1 for no dither."""
    return math.frexp(std_units)[1] - DITHER_BITS - 2 if std_units > dither_threshold else -1


@inline
def _add_dither(noised, dither, sign):  # type: ignore[no-untyped-def]
    for i in range(CHUNK_WORDS):
        noised[i] += sign * dither[i]


@inline
def _fill_dither(dither, keystream, bits):  # type: ignore[no-untyped-def]
    for i in range(CHUNK_WORDS):
        dither[i] = int64(keystream[i] >> uint64(63 - bits)) - (int64(1) << bits)


# Two functions, since a loop over arrays that may be the same is not vectorised.
@inline
def _set_noise(noised, message, squared_radii, keystream, std_units):  # type: ignore[no-untyped-def]
    for i in range(CHUNK_PAIRS):
        g, h = normal_pair(squared_radii[i], keystream[CHUNK_PAIRS + i])
        noised[i] = message[i] + round_to_integer(std_units * g)
        noised[CHUNK_PAIRS + i] = message[CHUNK_PAIRS + i] + round_to_integer(std_units * h)


@inline
def _accumulate_noise(noised, squared_radii, keystream, std_units):  # type: ignore[no-untyped-def]
    for i in range(CHUNK_PAIRS):
        g, h = normal_pair(squared_radii[i], keystream[CHUNK_PAIRS + i])
        noised[i] += round_to_integer(std_units * g)
        noised[CHUNK_PAIRS + i] += round_to_integer(std_units * h)


def padded_zeros(shape: tuple[int, int]) -> tuple[IntArray, IntArray]:
    """Allocate an int64 array of zeros, padded to whole chunks, and a view of it in `shape`."""
    d = math.prod(shape)
    flat = aligned_zeros((-(-d // CHUNK_WORDS) * CHUNK_WORDS,), np.int64)
    return flat, flat[:d].reshape(shape)


@kernel
def add_noise(noised, message, key, stream, first_machine, machines, t, std_units):  # type: ignore[no-untyped-def]
    """Set ``noised`` to ``message`` plus the rounded noise of consecutive machines, or of the server.

    Both are arrays of `padded_zeros`, in grid units, and must not overlap; ``key`` has the shape (8,), and
    rounds ``t`` begin at 1. Each machine's draw, of standard deviation ``std_units`` in grid units, is
    rounded by itself. Draws above `DITHER_THRESHOLD`, where floating-point errors are comparable to a grid
    unit, are dithered, so that only errors across the edge of a wide interval matter: post-processing of
    exact noise.
    """
    arrays = allocate_chunk_arrays()
    keystream, _, squared_radii, _, dither = arrays
    bits = dither_bits(std_units, DITHER_THRESHOLD)
    for chunk in range(message.size // CHUNK_WORDS):
        part = slice(chunk * CHUNK_WORDS, (chunk + 1) * CHUNK_WORDS)
        for machine in range(first_machine, first_machine + machines):
            fill_normal_pairs(*arrays, bits, key, chunk, stream, machine, t)
            if machine == first_machine:
                _set_noise(noised[part], message[part], squared_radii, keystream, std_units)
            else:
                _accumulate_noise(noised[part], squared_radii, keystream, std_units)
            if bits >= 0:
                _add_dither(noised[part], dither, 1)


@dataclass(frozen=True, eq=False)
class IndependentNoiseSource:
    """Noise source of consecutive machines, or of the server: Gaussian and independent over rounds."""

    key: Key
    streams: StreamRange
    std_units: Callable[[int], float]  # std of each draw of a round, in grid units

    def __call__(self, noised: IntArray, message: IntArray, t: int) -> None:
        """Set ``noised`` to ``message`` plus the noise of round t."""
        add_noise(noised, message, self.key, *self.streams, t, self.std_units(t))


@kernel
def add_signed_noise(  # type: ignore[no-untyped-def]
    noise, key, machines, participation_counts, std_units, dither_thresholds, sign
):
    """Add (``sign`` 1) or subtract (-1) one rounded noise draw of each machine to ``noise``.

    The participation count of a machine takes the place of the round; ``std_units`` and
    ``dither_thresholds`` are the std of each machine's draw, and the largest without dither, in grid units.
    """
    arrays = allocate_chunk_arrays()
    keystream, _, squared_radii, _, dither = arrays
    for chunk in range(noise.size // CHUNK_WORDS):
        part = noise[chunk * CHUNK_WORDS : (chunk + 1) * CHUNK_WORDS]
        for n in range(machines.size):
            bits = dither_bits(std_units[n], dither_thresholds[n])
            counter = machines[n], participation_counts[n]
            fill_normal_pairs(*arrays, bits, key, chunk, MACHINE_STREAM, *counter)
            # Rounding half to even is symmetric in the sign.
            _accumulate_noise(part, squared_radii, keystream, sign * std_units[n])
            if bits >= 0:
                _add_dither(part, dither, sign)


def check_stream_limits(d: int, machines: int, rounds: int) -> None:
    """Raise InputError if coordinates, machines or rounds exceed the range of ChaCha20 nonce and counter."""
    if d > _MAX_COORDINATES or max(machines, rounds) > MAX_STREAM_INDEX:
        raise InputError(
            f"--machines and --rounds must be at most {MAX_STREAM_INDEX}, and a model's parameters at most "
            f"{_MAX_COORDINATES}, got {machines}, {rounds} and {d}."
        )


def root_key(seed: int) -> bytes:
    """Derive the 32-byte root key of a seeded run, from which all its other keys are derived."""
    return hashlib.blake2b(seed.to_bytes(8, "little"), digest_size=32, person=b"mu2mpi seed").digest()


def derive_key(root: bytes, purpose: str, context: str = "") -> bytes:
    """Derive an independent 32-byte key from a root key for a purpose and a context, by keyed BLAKE2b."""
    return hashlib.blake2b(context.encode(), key=root, digest_size=32, person=purpose.encode()).digest()


def key_to_uint32(key: bytes) -> Key:
    """Convert a 32-byte key to an array of eight 32-bit words, read as little-endian."""
    return np.frombuffer(key, dtype="<u4").astype(np.uint32)
