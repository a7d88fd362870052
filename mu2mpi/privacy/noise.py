"""Gaussian noise as a function of (key, who, round, coordinate): no state, the same on any rank.

ChaCha20 is keyed by the noise key; its nonce holds who draws and in which round, its counter the
coordinate. Box and Muller's transform turns two 64-bit words into two normals: in each chunk of 256,
words i and 128 + i into normals i and 128 + i. Whoever lacks the key cannot tell the words from random
ones, and whoever holds it can recompute any draw anywhere, so a restarted run sends the same messages
again instead of a second noisy copy of the same secret.
"""

import hashlib
import math

import numpy as np
from numba import int64, uint32, uint64
from numpy.typing import NDArray

from mu2mpi.compiled import (
    aligned_zeros,
    bits_to_float,
    float_to_bits,
    inline,
    kernel,
    round_to_integer,
    scratch,
)
from mu2mpi.privacy.chacha20 import BLOCKS, fill_keystream

__all__ = [
    "AGGREGATE",
    "MACHINE",
    "MAX_COORDINATES",
    "MAX_NORMAL",
    "MAX_NUMBER",
    "SERVER",
    "add_noise",
    "derive_key",
    "key_words",
    "padded_zeros",
    "root_key",
    "standard_normal",
]

MACHINE, SERVER, AGGREGATE = 0, 1, 2
"""First word of the nonce: whose noise it is."""

MAX_COORDINATES, MAX_NUMBER = 2**35, 2**32 - 1
"""The counter of blocks, and the words of the nonce for machine and round, have 32 bits each."""

MAX_NORMAL = 8.5
"""No draw is larger: sqrt(2 * 52 log 2) = 8.490."""

PAIRS = 4 * BLOCKS
CHUNK = 2 * PAIRS
"""Normals, and 64-bit words, that one call of the keystream yields."""


def _bits(value: float) -> int:
    return int(np.float64(value).view(np.int64))


ONE, TWO_52, SIGN = _bits(1.0), _bits(2.0**52), -(2**63)
MANTISSA = 2**52 - 1
# Moves the exponent's step from 1 to sqrt(1/2), so that mantissas lie in [sqrt(1/2), sqrt 2).
HALF_ROOT = _bits(float(np.sqrt(0.5)))
MINUS_2_LOG_2 = -2 * float(np.log(2.0))


@inline
def _uniform(word):  # type: ignore[no-untyped-def]
    """Return the number in [1, 2) whose mantissa is the upper 52 bits of a random word."""
    return bits_to_float(int64(word >> uint64(12)) | int64(ONE))


@inline
def _split(u):  # type: ignore[no-untyped-def]
    """Return e and v with u = (1 + v) 2^e, 1 + v in [sqrt(1/2), sqrt 2), for u in (0, 1]."""
    bits = float_to_bits(u) + int64(ONE - HALF_ROOT)
    # Integers to floating-point numbers without an instruction that not every processor has for vectors.
    e = bits_to_float((bits >> int64(52)) | int64(TWO_52)) - (2.0**52 + 1023)
    return e, bits_to_float((bits & int64(MANTISSA)) + int64(HALF_ROOT)) - 1.0


@inline
def _minus_2_log_1p(v):  # type: ignore[no-untyped-def]
    """Return -2 log(1 + v) for 1 + v in [sqrt(1/2), sqrt 2), to 3e-15 relative.

    v times the Chebyshev interpolant of degree 17: longer than what follows a division, but faster than
    the division. Its even and odd terms are added up apart, so that they do not wait for each other.
    """
    z = v * v
    odd = 0.06507710665674324
    even = -0.13998377781024443
    odd = odd * z + 0.1485548283051138
    even = even * z - 0.1345343992052928
    odd = odd * z + 0.13924845721909282
    even = even * z - 0.15320539867696304
    odd = odd * z + 0.16693584645177037
    even = even * z - 0.18188491286237987
    odd = odd * z + 0.19998922502188032
    even = even * z - 0.2222189346512985
    odd = odd * z + 0.2500002294268213
    even = even * z - 0.285714369032022
    odd = odd * z + 0.33333333095433604
    even = even * z - 0.3999999989854986
    odd = odd * z + 0.500000000009812
    even = even * z - 0.6666666666713302
    odd = odd * z + 0.9999999999999898
    even = even * z - 1.9999999999999964
    return v * (odd * v + even)


@inline
def _sin_quarter(f):  # type: ignore[no-untyped-def]
    """sin(f pi / 2) for |f| <= 1/2, by the Chebyshev interpolant of degree 6 in f^2 (error 5e-18)."""
    z = f * f
    p = 5.6339337815378539538e-8
    p = p * z - 3.598643352982309702e-6
    p = p * z + 0.00016044115074219091052
    p = p * z - 0.0046817541323409759917
    p = p * z + 0.079692626246043003134
    p = p * z - 0.64596409750624431573
    p = p * z + 1.5707963267948966143
    return p * f


@inline
def _cos_quarter(f):  # type: ignore[no-untyped-def]
    """cos(f pi / 2) for |f| <= 1/2, by the Chebyshev interpolant of degree 6 in f^2 (error 5e-17)."""
    z = f * f
    p = 4.6552961874867621506e-7
    p = p * z - 0.000025200135264284791372
    p = p * z + 0.00091925995004166091679
    p = p * z - 0.020863480734946568947
    p = p * z + 0.2536695078998647314
    p = p * z - 1.2337005501361513411
    return p * z + 1.0


@inline
def _squared_radii(words, squares, mantissas):  # type: ignore[no-untyped-def]
    """Turn the first half of a chunk's words into squared radii -2 log u, u uniform in (0, 1].

    In two loops: the steps for one pair wait for each other, and a processor looks only so far ahead for
    others to work on meanwhile.
    """
    for i in range(PAIRS):
        squares[i], mantissas[i] = _split(2.0 - _uniform(words[i]))
    for i in range(PAIRS):
        squares[i] = squares[i] * MINUS_2_LOG_2 + _minus_2_log_1p(mantissas[i])


@inline
def _normal_pair(square, word):  # type: ignore[no-untyped-def]
    """Return the two coordinates of a point at a squared radius and a random angle.

    The upper 52 bits of the word say where the angle lies in a quarter of the circle, and its lowest two
    in which quarter.

    References
    ----------
    Box and Muller, "A note on the generation of random normal deviates", 1958.
    """
    f = _uniform(word) - 1.5
    sign = int64(word << uint64(62)) & int64(SIGN)
    radius = bits_to_float(float_to_bits(np.sqrt(square)) ^ sign)
    cosine, sine = radius * _cos_quarter(f), radius * _sin_quarter(f)
    swap = (word & uint64(1)) != uint64(0)
    return (sine if swap else cosine), (cosine if swap else sine)


@inline
def _add_draw(noised, message, squares, words, scale):  # type: ignore[no-untyped-def]
    for i in range(PAIRS):
        g, h = _normal_pair(squares[i], words[PAIRS + i])
        noised[i] = message[i] + round_to_integer(scale * g)
        noised[PAIRS + i] = message[PAIRS + i] + round_to_integer(scale * h)


@inline
def _add_another_draw(noised, squares, words, scale):  # type: ignore[no-untyped-def]
    for i in range(PAIRS):
        g, h = _normal_pair(squares[i], words[PAIRS + i])
        noised[i] += round_to_integer(scale * g)
        noised[PAIRS + i] += round_to_integer(scale * h)


def padded_zeros(shape: tuple[int, int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return zeros in units of the grid twice: flat as `add_noise` takes them, and in their shape.

    Parameters
    ----------
    shape : (int, int)
        Shape of the model.

    Returns
    -------
    flat : ndarray of int64, shape (padded,)
        The numbers, padded to a whole number of chunks of the noise.
    shaped : ndarray of int64, shape `shape`
        A view of the start of `flat`.
    """
    d = math.prod(shape)
    flat = aligned_zeros((-(-d // CHUNK) * CHUNK,), np.int64)
    return flat, flat[:d].reshape(shape)


@kernel
def add_noise(noised, message, key, who, first, count, t, scale):  # type: ignore[no-untyped-def]
    """Set ``noised`` to ``message`` plus the rounded noise of some machines, or of the server, in round t.

    Parameters
    ----------
    noised : ndarray of int64, shape (padded,)
        Overwritten with the sum, in units of the grid.
    message : ndarray of int64, shape (padded,)
        What is to be hidden, in units of the grid; may not overlap `noised`. Both come from
        `padded_zeros`; what is behind the first d numbers means nothing.
    key : ndarray of uint32, shape (8,)
        The noise key.
    who : int
        `MACHINE`, `SERVER` or `AGGREGATE`.
    first, count : int
        The draws of machines ``first .. first + count - 1``, at least one, are added, each rounded on
        its own.
    t : int
        The round.
    scale : float
        Standard deviation of a coordinate of one draw, in units of the grid.
    """
    words = scratch(CHUNK).view(np.uint64)
    halves, squares, mantissas = words.view(np.uint32), scratch(PAIRS), scratch(PAIRS)
    for chunk in range(message.size // CHUNK):
        part = slice(chunk * CHUNK, (chunk + 1) * CHUNK)
        for machine in range(first, first + count):
            fill_keystream(halves, key, uint32(chunk * BLOCKS), uint32(who), uint32(machine), uint32(t))
            _squared_radii(words, squares, mantissas)
            if machine == first:
                _add_draw(noised[part], message[part], squares, words, scale)
            else:
                _add_another_draw(noised[part], squares, words, scale)


@kernel
def _fill_normals(out, key, who, number, t):  # type: ignore[no-untyped-def]
    words = scratch(CHUNK).view(np.uint64)
    halves, squares, mantissas = words.view(np.uint32), scratch(PAIRS), scratch(PAIRS)
    for chunk in range(out.size // CHUNK):
        fill_keystream(halves, key, uint32(chunk * BLOCKS), uint32(who), uint32(number), uint32(t))
        _squared_radii(words, squares, mantissas)
        part = out[chunk * CHUNK : (chunk + 1) * CHUNK]
        for i in range(PAIRS):
            g, h = _normal_pair(squares[i], words[PAIRS + i])
            part[i] = g
            part[PAIRS + i] = h


def standard_normal(key: NDArray[np.uint32], who: int, number: int, t: int, d: int) -> NDArray[np.float64]:
    """Return one draw of the stream before it is scaled and rounded.

    Parameters
    ----------
    key : ndarray of uint32, shape (8,)
        The noise key.
    who, number, t : int
        `MACHINE`, `SERVER` or `AGGREGATE`, the machine's number (else 0), and the round.
    d : int
        Number of coordinates.

    Returns
    -------
    ndarray of float64, shape (d,)
    """
    out = np.empty(-(-d // CHUNK) * CHUNK)
    _fill_normals(out, key, who, number, t)
    return out[:d]


def root_key(seed: int) -> bytes:
    """Return the 32-byte key from which everything random in a seeded run follows."""
    return hashlib.blake2b(seed.to_bytes(8, "little"), digest_size=32, person=b"mu2mpi seed").digest()


def derive_key(root: bytes, purpose: str, context: str = "") -> bytes:
    """Return the 32-byte key for a purpose in a context; different keys tell nothing of each other."""
    return hashlib.blake2b(context.encode(), key=root, digest_size=32, person=purpose.encode()).digest()


def key_words(key: bytes) -> NDArray[np.uint32]:
    """Return a 32-byte key as the eight little-endian words that the kernels take."""
    return np.frombuffer(key, dtype="<u4").astype(np.uint32)
