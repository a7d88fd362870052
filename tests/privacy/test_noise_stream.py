"""ChaCha20 against RFC 8439, the Gaussian stream against plain numpy, and its statistics."""

import numpy as np
from helpers import reference as ref
from helpers.noise import standard_normal
from helpers.property_tests import given
from hypothesis import strategies as st
from scipy import stats

from mu2mpi.privacy.noise.chacha20 import KEYSTREAM_BLOCKS
from mu2mpi.privacy.noise.noise_stream import (
    CHUNK_PAIRS,
    CHUNK_WORDS,
    MACHINE_STREAM,
    SERVER_STREAM,
    add_noise,
    derive_key,
    key_to_uint32,
    padded_zeros,
    root_key,
)
from mu2mpi.privacy.noise.sampler_error import DITHER_THRESHOLD

KEY = key_to_uint32(root_key(2024))
keys = st.binary(min_size=32, max_size=32)
words = st.integers(0, 2**32 - 1)


def plain_normals(key: bytes, who: int, number: int, t: int, d: int) -> np.ndarray:
    """The stream as documented, with numpy's own functions: words i and 128 + i of a chunk make a pair."""
    chunks = []
    for chunk in range(-(-d // CHUNK_WORDS)):
        words = ref.noise_words(key, (who, number, t), chunk)
        a, b = words[:CHUNK_PAIRS], words[CHUNK_PAIRS:]
        # Close to 1, what counts is how far from it.
        near = a > 0.7 * 2.0**64
        radius = np.sqrt(-2 * np.where(near, np.log1p(~a * -(2.0**-64)), np.log(a * 2.0**-64)))
        angle = b.view(np.int64) * 2.0**-64 * np.pi / 2
        sign = np.where(b & 2, -1.0, 1.0)
        swap = (b & 1).astype(bool)
        cosine, sine = sign * radius * np.cos(angle), sign * radius * np.sin(angle)
        chunks += [np.where(swap, sine, cosine), np.where(swap, cosine, sine)]
    return np.concatenate(chunks)[:d]


@given(
    keys, st.sampled_from([MACHINE_STREAM, SERVER_STREAM]), words, words, st.integers(1, 600), max_examples=15
)
def test_normals_equal_plain_numpy(key, who, number, t, d):
    found = standard_normal(key_to_uint32(key), who, number, t, d)
    np.testing.assert_allclose(found, plain_normals(key, who, number, t, d), rtol=1e-13, atol=1e-15)


def noised(message, first, count, scale):
    """Return a message with the noise of some machines in round 7."""
    flat, shaped = padded_zeros((1, message.size))
    out, out_shaped = padded_zeros((1, message.size))
    shaped[0] = message
    out[:] = -1
    add_noise(out, flat, KEY, MACHINE_STREAM, first, count, 7, scale)
    return out_shaped[0]


@given(
    st.integers(0, 50),
    st.integers(1, 5),
    st.integers(1, 1000),
    st.floats(1, DITHER_THRESHOLD),
    max_examples=30,
)
def test_added_noise_is_the_sum_of_rounded_draws(first, count, d, scale):
    message = np.arange(d) * 10**9
    found = noised(message, first, count, scale)
    draws = [np.rint(scale * standard_normal(KEY, MACHINE_STREAM, first + i, 7, d)) for i in range(count)]
    # A fused product and sum may round a tie the other way.
    assert np.all(np.abs(found - message - np.sum(draws, axis=0)) <= count)
    one_by_one = message
    for i in range(count):
        one_by_one = noised(one_by_one, first + i, 1, scale)
    np.testing.assert_array_equal(found, one_by_one)


def test_each_word_of_the_nonce_matters():
    draws = {
        standard_normal(KEY, who, number, t, 8).tobytes()
        for who in (0, 1)
        for number in (0, 1)
        for t in (1, 2)
    }
    assert len(draws) == 8
    longer, shorter = standard_normal(KEY, 0, 3, 5, 700), standard_normal(KEY, 0, 3, 5, 100)
    np.testing.assert_array_equal(longer[:100], shorter)


def test_the_stream_of_a_seed_is_for_ever():
    """Vectors that pin seeds to bits: if they change, every seeded run changes, and the changelog says so."""
    root = root_key(2**62 + 12345)
    assert root.hex() == "e22e238af03fbf9777ddf240dc203a264d683c19204d68884567ba9d9628e75c"
    assert (
        derive_key(root, "noise", "context").hex()
        == "e0c83efed28e216b473fb81ec805c6ec7f17da6bc23801efd46d3ae01ccda064"
    )
    found = standard_normal(key_to_uint32(root), MACHINE_STREAM, 70_000, 80_000, 300)[[0, 1, 255, 256, 299]]
    np.testing.assert_allclose(
        found,
        [0.9946107618395499, 1.9039923623068722, 0.3066739083521084, -0.6047293688419777, 0.6122745110079262],
        rtol=1e-13,
    )


# Statistics of fixed draws: they pass or fail for good, and a correct generator with other keys would
# fail each check with the probability stated there.

MILLION = np.concatenate([standard_normal(KEY, MACHINE_STREAM, i, 1, 10_000) for i in range(100)])


def test_kolmogorov_smirnov():
    """Fails with probability 1e-4."""
    assert stats.kstest(MILLION, "norm").pvalue > 1e-4


def test_no_correlation_between_machines_rounds_and_coordinates():
    """Correlations of values, and of squares, over 100,000 draws within 5 standard errors: 6e-7 each."""
    d = 100_000
    base = standard_normal(KEY, MACHINE_STREAM, 5, 9, d)
    others = [
        standard_normal(KEY, MACHINE_STREAM, 6, 9, d),
        standard_normal(KEY, MACHINE_STREAM, 5, 10, d),
        standard_normal(KEY, SERVER_STREAM, 5, 9, d),
        standard_normal(KEY, MACHINE_STREAM, 9, 5, d),
    ]
    others += [
        np.roll(base, shift) for shift in (1, 2, KEYSTREAM_BLOCKS, CHUNK_PAIRS, CHUNK_WORDS, CHUNK_WORDS + 1)
    ]
    for other in others:
        for a, b in ((base, other), (base**2 - 1, other**2 - 1)):
            correlation = np.mean(a * b) / np.sqrt(np.mean(a**2) * np.mean(b**2))
            assert abs(correlation) < 5 / np.sqrt(d)
