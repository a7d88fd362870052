"""ChaCha20 against RFC 8439 and plain Python."""

import numba
import numpy as np
import pytest
from helpers import reference as ref
from helpers.property_tests import given
from hypothesis import strategies as st

from mu2mpi.privacy.noise.chacha20 import KEYSTREAM_BLOCKS, fill_keystream
from mu2mpi.privacy.noise.noise_stream import key_to_uint32

keys = st.binary(min_size=32, max_size=32)
words = st.integers(0, 2**32 - 1)


@numba.njit
def keystream(key, counter, nonce):
    out = np.empty(16 * KEYSTREAM_BLOCKS, np.uint32)
    fill_keystream(
        out, key, numba.uint32(counter), numba.uint32(nonce[0]), numba.uint32(nonce[1]),
        numba.uint32(nonce[2]),
    )  # fmt: skip
    return out


def our_blocks(key: bytes, counter: int, nonce: bytes) -> list[bytes]:
    out = keystream(key_to_uint32(key), counter, np.frombuffer(nonce, "<u4"))
    return [out.reshape(16, KEYSTREAM_BLOCKS)[:, b].astype("<u4").tobytes() for b in range(KEYSTREAM_BLOCKS)]


def test_chacha20_vector_of_rfc_8439_section_2_3_2():
    nonce = bytes.fromhex("000000090000004a00000000")
    block = our_blocks(bytes(range(32)), 1, nonce)[0]
    assert block.hex() == (
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"
    )


@pytest.mark.parametrize(
    ("key", "nonce", "counter", "start"),
    [
        (bytes(32), bytes(12), 0, "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"),
        (bytes(32), bytes(12), 1, "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"),
        (bytes(31) + b"\1", bytes(12), 1, "3aeb5224ecf849929b9d828db1ced4dd832025e8018b8160b82284f3c949aa5a"),
        (bytes(32), bytes(11) + b"\2", 0, "c2c64d378cd536374ae204b9ef933fcd1a8b2288b3dfa49672ab765b54ee27c7"),
    ],
)
def test_chacha20_vectors_of_rfc_8439_appendix_a_1(key, nonce, counter, start):
    assert our_blocks(key, counter, nonce)[0].hex().startswith(start)


@given(keys, words, st.binary(min_size=12, max_size=12), max_examples=30)
def test_chacha20_equals_plain_python_in_every_lane(key, counter, nonce):
    found = our_blocks(key, counter, nonce)
    assert found == [ref.chacha20_block(key, (counter + b) % 2**32, nonce) for b in range(KEYSTREAM_BLOCKS)]
