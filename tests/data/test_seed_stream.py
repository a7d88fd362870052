"""Streams of random words: functions of seed, stream, part and place alone."""

import numpy as np
import pytest

from mu2mpi.data.seed_stream import SeedStream, philox_key, unit_uniforms


def test_words_are_those_of_philox_wherever_they_are_read():
    whole = np.random.Philox(key=7 | 3 << 64, counter=[0, 0, 5, 0]).random_raw(40)
    stream = SeedStream(7, 3)
    for skipped, count in ((0, 40), (5, 9), (4, 4), (39, 1), (1, 0)):
        np.testing.assert_array_equal(stream.integers(5, count, skipped), whole[skipped : skipped + count])
    assert (
        len({SeedStream(*of).integers(part, 1)[0] for of in ((7, 3), (7, 2), (6, 3)) for part in (5, 4)}) == 6
    )


def test_uniforms_are_the_first_53_bits():
    words = np.array([0, 2**11 - 1, 2**11, 2**63, 2**64 - 1], np.uint64)
    assert unit_uniforms(words).tolist() == [0, 0, 2.0**-53, 0.5, 1 - 2.0**-53]


def test_keys_differ_by_use():
    assert len({philox_key(key, use) for key in (bytes(32), b"1" * 32) for use in ("dealing", "data")}) == 4
    with pytest.raises(ValueError, match="31 bytes"):
        philox_key(bytes(31), "data")
