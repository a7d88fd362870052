"""Which samples are drawn: against ChaCha20 in plain Python, and the statistics of what is drawn."""

import numpy as np
from helpers import reference as ref
from helpers.property_tests import given
from hypothesis import strategies as st

from mu2mpi.federation.subsampling import (
    BATCH_NONCE_WORD,
    CHUNK_WORDS,
    sample_poisson_batches,
    sample_replacement_batches,
)
from mu2mpi.privacy.noise.chacha20 import KEYSTREAM_BLOCKS

keys = st.binary(min_size=32, max_size=32)
ends = st.integers(0, 2**32 - 4)


def plain_words(key, machine, t, count):
    """The words of a machine in a round as documented: in a part, word w of all blocks before word w + 1."""
    nonce = np.array([BATCH_NONCE_WORD, machine, t], "<u4").tobytes()
    parts = []
    for part in range(-(-count // CHUNK_WORDS)):
        blocks = [
            ref.chacha20_block(key, part * KEYSTREAM_BLOCKS + b, nonce) for b in range(KEYSTREAM_BLOCKS)
        ]
        parts.append(np.array([np.frombuffer(block, "<u4") for block in blocks]).T.ravel().view("<u8"))
    return [int(word) for word in np.concatenate(parts)[:count]]


@given(
    keys,
    ends,
    ends,
    st.sampled_from([1, 30, CHUNK_WORDS, CHUNK_WORDS + 1, 600]),
    st.floats(0, 1),
    max_examples=15,
)
def test_independent_draws_equal_plain_python(key, machine, t, owned, q):
    threshold = min(int(q * 2**64), 2**64 - 1)
    machines, rounds = np.array([machine, machine + 1] * 2), np.array([t, t, t + 1, t + 1])
    places, sizes = sample_poisson_batches(key, machines, rounds, owned, threshold)
    wanted = [
        [k for k, word in enumerate(plain_words(key, i, s, owned)) if word < threshold]
        for i, s in zip(machines.tolist(), rounds.tolist(), strict=True)
    ]
    np.testing.assert_array_equal(sizes.ravel(), [len(of) for of in wanted])
    np.testing.assert_array_equal(places, [k for of in wanted for k in of])


@given(
    keys, ends, ends, st.integers(1, 40) | st.integers(1, 2**63 - 1) | st.just(3 * 2**61),
    st.sampled_from([1, 7, CHUNK_WORDS + 5]), max_examples=15,
)  # fmt: skip
def test_uniform_draws_equal_plain_python(key, machine, t, owned, number):
    """Of large n, many words are refused; what is left is uniform to the last bit."""
    machines, rounds = np.array([machine, machine + 1] * 2), np.array([t, t, t + 1, t + 1])
    places = sample_replacement_batches(key, machines, rounds, owned, number)
    for i, s, found in zip(machines.tolist(), rounds.tolist(), places, strict=True):
        words = plain_words(key, i, s, 4 * number + 64)
        kept = [word * owned >> 64 for word in words if word * owned % 2**64 >= 2**64 % owned]
        assert found.tolist() == kept[:number]


# Statistics of fixed draws: they pass or fail for good, and with other keys a correct generator would fail
# each with the probability stated there.
