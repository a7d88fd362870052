"""The ChaCha20 block function of RFC 8439, many blocks side by side.

The loop over blocks keeps the whole state in sixteen scalars and writes out the ten double rounds, so
that LLVM turns each scalar into a vector with one block a lane. Sums and shifts are cast back to uint32
at once: numba would widen them to 64 bits otherwise.
"""

from numba import uint32

from mu2mpi.compiled import inline

__all__ = ["BLOCKS", "fill_keystream"]

BLOCKS = 32
"""Blocks computed by one call of `fill_keystream`; each yields sixteen words of 32 bits."""

# "expand 32-byte k", RFC 8439, section 2.3.
C0, C1, C2, C3 = 0x61707865, 0x3320646E, 0x79622D32, 0x6B206574


@inline
def _rotate(value, bits):  # type: ignore[no-untyped-def]
    return uint32(uint32(value << uint32(bits)) | uint32(value >> uint32(32 - bits)))


@inline
def _quarter_round(a, b, c, d):  # type: ignore[no-untyped-def]
    a = uint32(a + b)
    d = _rotate(uint32(d ^ a), 16)
    c = uint32(c + d)
    b = _rotate(uint32(b ^ c), 12)
    a = uint32(a + b)
    d = _rotate(uint32(d ^ a), 8)
    c = uint32(c + d)
    b = _rotate(uint32(b ^ c), 7)
    return a, b, c, d


@inline
def _double_round(state):  # type: ignore[no-untyped-def]
    s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, s13, s14, s15 = state
    s0, s4, s8, s12 = _quarter_round(s0, s4, s8, s12)
    s1, s5, s9, s13 = _quarter_round(s1, s5, s9, s13)
    s2, s6, s10, s14 = _quarter_round(s2, s6, s10, s14)
    s3, s7, s11, s15 = _quarter_round(s3, s7, s11, s15)
    s0, s5, s10, s15 = _quarter_round(s0, s5, s10, s15)
    s1, s6, s11, s12 = _quarter_round(s1, s6, s11, s12)
    s2, s7, s8, s13 = _quarter_round(s2, s7, s8, s13)
    s3, s4, s9, s14 = _quarter_round(s3, s4, s9, s14)
    return s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, s13, s14, s15


@inline
def fill_keystream(words, key, counter, nonce0, nonce1, nonce2):  # type: ignore[no-untyped-def]
    """Compute `BLOCKS` consecutive blocks of the keystream.

    Parameters
    ----------
    words : ndarray of uint32, shape (16 * BLOCKS,)
        Overwritten: word w of block ``counter + b`` goes to ``words[w * BLOCKS + b]``.
    key : ndarray of uint32, shape (8,)
        The key, as little-endian words.
    counter : uint32
        Number of the first block.
    nonce0, nonce1, nonce2 : uint32
        The nonce, as little-endian words.

    References
    ----------
    RFC 8439, "ChaCha20 and Poly1305 for IETF Protocols", sections 2.1 to 2.4.
    """
    c0, c1, c2, c3 = uint32(C0), uint32(C1), uint32(C2), uint32(C3)
    k0, k1, k2, k3, k4, k5, k6, k7 = key[0], key[1], key[2], key[3], key[4], key[5], key[6], key[7]
    for b in range(BLOCKS):
        count = uint32(counter + uint32(b))
        s = (c0, c1, c2, c3, k0, k1, k2, k3, k4, k5, k6, k7, count, nonce0, nonce1, nonce2)
        s = _double_round(_double_round(_double_round(_double_round(_double_round(s)))))
        s = _double_round(_double_round(_double_round(_double_round(_double_round(s)))))
        words[0 * BLOCKS + b] = uint32(s[0] + c0)
        words[1 * BLOCKS + b] = uint32(s[1] + c1)
        words[2 * BLOCKS + b] = uint32(s[2] + c2)
        words[3 * BLOCKS + b] = uint32(s[3] + c3)
        words[4 * BLOCKS + b] = uint32(s[4] + k0)
        words[5 * BLOCKS + b] = uint32(s[5] + k1)
        words[6 * BLOCKS + b] = uint32(s[6] + k2)
        words[7 * BLOCKS + b] = uint32(s[7] + k3)
        words[8 * BLOCKS + b] = uint32(s[8] + k4)
        words[9 * BLOCKS + b] = uint32(s[9] + k5)
        words[10 * BLOCKS + b] = uint32(s[10] + k6)
        words[11 * BLOCKS + b] = uint32(s[11] + k7)
        words[12 * BLOCKS + b] = uint32(s[12] + count)
        words[13 * BLOCKS + b] = uint32(s[13] + nonce0)
        words[14 * BLOCKS + b] = uint32(s[14] + nonce1)
        words[15 * BLOCKS + b] = uint32(s[15] + nonce2)
