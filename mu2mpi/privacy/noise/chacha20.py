"""ChaCha20 block function of RFC 8439, vectorised over blocks (one block per SIMD lane).

Sums and shifts are cast to uint32 immediately, because numba widens them to 64 bits; so are rotations,
because numba would compile a function for each literal.
"""

from numba import uint32

from mu2mpi.core.kernels import inline

KEYSTREAM_BLOCKS = 32  # blocks of sixteen 32-bit words per call of `fill_keystream`


@inline
def _rotate_left(value, bits):  # type: ignore[no-untyped-def]
    return uint32(uint32(value << bits) | uint32(value >> (uint32(32) - bits)))


@inline
def _add_xor_rotate(a, b, d, bits):  # type: ignore[no-untyped-def]
    """Step of a ChaCha20 quarter round in four columns: a + b, and d ^ (a + b) rotated left by ``bits``."""
    a0, a1, a2, a3 = a
    b0, b1, b2, b3 = b
    d0, d1, d2, d3 = d
    a0, a1, a2, a3 = uint32(a0 + b0), uint32(a1 + b1), uint32(a2 + b2), uint32(a3 + b3)
    d0, d1 = _rotate_left(uint32(d0 ^ a0), bits), _rotate_left(uint32(d1 ^ a1), bits)
    d2, d3 = _rotate_left(uint32(d2 ^ a2), bits), _rotate_left(uint32(d3 ^ a3), bits)
    return (a0, a1, a2, a3), (d0, d1, d2, d3)


@inline
def _quarter_rounds(a, b, c, d):  # type: ignore[no-untyped-def]
    a, d = _add_xor_rotate(a, b, d, uint32(16))
    c, b = _add_xor_rotate(c, d, b, uint32(12))
    a, d = _add_xor_rotate(a, b, d, uint32(8))
    c, b = _add_xor_rotate(c, d, b, uint32(7))
    return a, b, c, d


@inline
def _double_round(a, b, c, d):  # type: ignore[no-untyped-def]
    a, b, c, d = _quarter_rounds(a, b, c, d)
    b, c, d = (b[1], b[2], b[3], b[0]), (c[2], c[3], c[0], c[1]), (d[3], d[0], d[1], d[2])
    a, b, c, d = _quarter_rounds(a, b, c, d)
    return a, (b[3], b[0], b[1], b[2]), (c[2], c[3], c[0], c[1]), (d[1], d[2], d[3], d[0])


@inline
def fill_keystream(keystream, key, counter, nonce0, nonce1, nonce2):  # type: ignore[no-untyped-def]
    """Fill ``keystream`` with ChaCha20 blocks: word w of block b at w * KEYSTREAM_BLOCKS + b."""
    # "expand 32-byte k", RFC 8439, section 2.3
    a0 = uint32(0x61707865), uint32(0x3320646E), uint32(0x79622D32), uint32(0x6B206574)
    b0, c0 = (key[0], key[1], key[2], key[3]), (key[4], key[5], key[6], key[7])
    for lane in range(KEYSTREAM_BLOCKS):
        d0 = uint32(counter + uint32(lane)), nonce0, nonce1, nonce2
        a, b, c, d = a0, b0, c0, d0
        a, b, c, d = _double_round(*_double_round(*_double_round(*_double_round(*_double_round(a, b, c, d)))))
        a, b, c, d = _double_round(*_double_round(*_double_round(*_double_round(*_double_round(a, b, c, d)))))
        for column in range(4):
            keystream[column * KEYSTREAM_BLOCKS + lane] = uint32(a[column] + a0[column])
            keystream[(4 + column) * KEYSTREAM_BLOCKS + lane] = uint32(b[column] + b0[column])
            keystream[(8 + column) * KEYSTREAM_BLOCKS + lane] = uint32(c[column] + c0[column])
            keystream[(12 + column) * KEYSTREAM_BLOCKS + lane] = uint32(d[column] + d0[column])
