"""Gaussian noise as a function of (key, who, round, coordinate): no state, the same on any rank.

ChaCha20 is keyed by the noise key; its nonce holds who draws and in which round, its counter the
coordinate. Box and Muller's transform turns two 64-bit words into two normals. Whoever lacks the key
cannot tell the words from random ones, and whoever holds it can recompute any draw anywhere, so a
restarted run sends the same messages again instead of a second noisy copy of the same secret.
"""

import hashlib

import numpy as np
from numba import int64, uint32, uint64
from numpy.typing import NDArray

from mu2mpi.compiled import bits_to_float, float_to_bits, inline, kernel, round_to_integer
from mu2mpi.privacy.chacha20 import BLOCKS, fill_keystream

__all__ = [
    "MACHINE",
    "MAX_COORDINATES",
    "MAX_NORMAL",
    "MAX_NUMBER",
    "SERVER",
    "add_noise",
    "derive_key",
    "key_words",
    "root_key",
    "standard_normal",
]

MACHINE, SERVER = 0, 1
"""First word of the nonce: whose noise it is."""

MAX_COORDINATES, MAX_NUMBER = 2**35, 2**32 - 1
"""The counter of blocks, and the words of the nonce for machine and round, have 32 bits each."""

MAX_NORMAL = 8.6
"""No draw is larger: sqrt(2 * 53 log 2) = 8.572."""

CHUNK = 8 * BLOCKS  # normals that one call of the keystream yields

# Offset that moves the exponent's step from 1 to sqrt(1/2), so that mantissas lie in [sqrt(1/2), sqrt 2).
HALF_ROOT = int(np.float64(np.sqrt(0.5)).view(np.int64))
ONE = int(np.float64(1.0).view(np.int64))
LOG_2 = float(np.log(2.0))


@inline
def _log(u):  # type: ignore[no-untyped-def]
    """Natural logarithm of a float64 in (0, 1], to 3e-15 relative.

    With u = (1 + v) 2^e, log(1 + v) = v P(v), where P is the Chebyshev interpolant of degree 17: longer
    than what follows a division, but faster than the division. Its even and odd terms are added up
    apart, so that they do not wait for each other.
    """
    bits = float_to_bits(u) + int64(ONE - HALF_ROOT)
    exponent = (bits >> int64(52)) - int64(1023)
    v = bits_to_float((bits & int64(0x000FFFFFFFFFFFFF)) + int64(HALF_ROOT)) - 1.0
    z = v * v
    odd = -0.03253855332837162
    even = 0.06999188890512222
    odd = odd * z - 0.0742774141525569
    even = even * z + 0.0672671996026464
    odd = odd * z - 0.06962422860954641
    even = even * z + 0.07660269933848152
    odd = odd * z - 0.08346792322588518
    even = even * z + 0.09094245643118994
    odd = odd * z - 0.09999461251094016
    even = even * z + 0.11110946732564925
    odd = odd * z - 0.12500011471341066
    even = even * z + 0.142857184516011
    odd = odd * z - 0.16666666547716802
    even = even * z + 0.1999999994927493
    odd = odd * z - 0.250000000004906
    even = even * z + 0.3333333333356651
    odd = odd * z - 0.4999999999999949
    even = even * z + 0.9999999999999982
    return np.float64(exponent) * LOG_2 + v * (odd * v + even)


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
def _normal_pair(a, b):  # type: ignore[no-untyped-def]
    """Turn two random 64-bit words into two independent standard normals.

    The radius takes the upper 53 bits of `a`. The angle takes the upper 53 bits of `b` for its place in
    one quarter of the circle and the lowest two for the quarter.

    References
    ----------
    Box and Muller, "A note on the generation of random normal deviates", 1958.
    """
    radius = np.sqrt(-2.0 * _log(np.float64(int64(a >> uint64(11)) + int64(1)) * 2.0**-53))
    f = np.float64(int64(b >> uint64(11))) * 2.0**-53 - 0.5
    sign = int64((b & uint64(2)) << uint64(62))
    signed_radius = bits_to_float(float_to_bits(radius) ^ sign)
    cosine = signed_radius * _cos_quarter(f)
    sine = signed_radius * _sin_quarter(f)
    swap = (b & uint64(1)) != uint64(0)
    return (sine if swap else cosine), (cosine if swap else sine)


@inline
def _word_pair(words, p, b):  # type: ignore[no-untyped-def]
    """Return the 64-bit words 2p and 2p + 1 of block b."""
    first = uint64(words[(4 * p + 1) * BLOCKS + b]) << uint64(32) | uint64(words[4 * p * BLOCKS + b])
    second = uint64(words[(4 * p + 3) * BLOCKS + b]) << uint64(32) | uint64(words[(4 * p + 2) * BLOCKS + b])
    return first, second


@kernel
def add_noise(noised, message, key, who, first, count, t, scale):  # type: ignore[no-untyped-def]
    """Set ``noised`` to ``message`` plus the rounded noise of some machines, or of the server, in round t.

    Parameters
    ----------
    noised : ndarray of int64, shape (d,)
        Overwritten with the sum, in units of the grid.
    message : ndarray of int64, shape (d,)
        What is to be hidden, in units of the grid; may not overlap `noised`.
    key : ndarray of uint32, shape (8,)
        The noise key.
    who : int
        `MACHINE` or `SERVER`.
    first, count : int
        The draws of machines ``first .. first + count - 1`` are added, each rounded on its own.
    t : int
        The round.
    scale : float
        Standard deviation of a coordinate of one draw, in units of the grid.
    """
    d = message.size
    words = np.empty(16 * BLOCKS, np.uint32)
    sums = np.empty(CHUNK, np.int64)
    for chunk in range((d + CHUNK - 1) // CHUNK):
        sums[:] = 0
        for machine in range(first, first + count):
            fill_keystream(words, key, uint32(chunk * BLOCKS), uint32(who), uint32(machine), uint32(t))
            for p in range(4):
                for b in range(BLOCKS):
                    u, v = _word_pair(words, p, b)
                    g, h = _normal_pair(u, v)
                    sums[2 * p * BLOCKS + b] += round_to_integer(scale * g)
                    sums[(2 * p + 1) * BLOCKS + b] += round_to_integer(scale * h)
        start = chunk * CHUNK
        for j in range(min(CHUNK, d - start)):
            noised[start + j] = message[start + j] + sums[j]


@kernel
def _fill_normals(out, key, who, number, t):  # type: ignore[no-untyped-def]
    words = np.empty(16 * BLOCKS, np.uint32)
    for chunk in range(out.size // CHUNK):
        fill_keystream(words, key, uint32(chunk * BLOCKS), uint32(who), uint32(number), uint32(t))
        for p in range(4):
            for b in range(BLOCKS):
                u, v = _word_pair(words, p, b)
                g, h = _normal_pair(u, v)
                out[chunk * CHUNK + 2 * p * BLOCKS + b] = g
                out[chunk * CHUNK + (2 * p + 1) * BLOCKS + b] = h


def standard_normal(key: NDArray[np.uint32], who: int, number: int, t: int, d: int) -> NDArray[np.float64]:
    """Return one draw of the stream before it is scaled and rounded.

    Parameters
    ----------
    key : ndarray of uint32, shape (8,)
        The noise key.
    who, number, t : int
        `MACHINE` or `SERVER`, the machine's number (0 for the server), and the round.
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
