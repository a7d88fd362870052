"""The dealing of samples to machines."""

import hashlib

import numpy as np
import pytest
from helpers.sources import random_source
from hypothesis import strategies as st
from scipy.stats import chi2

from mu2mpi.core.errors import InputError
from mu2mpi.data.partition import check_enough_samples, iid_rows, parse_partition

KEY = bytes(range(32))
keys = st.binary(min_size=32, max_size=32)
# In each test of uniformity the keys are fixed. A correct dealing fails for one choice of keys in a million.
FALSE_ALARM = 1e-6
TRIALS = 4000


def deal(samples, machines, key):
    """Return the training rows of each machine in the order of their use, as an array with a row for each."""
    return iid_rows(samples, machines, samples // machines, key, range(machines)).T


def test_the_key_decides():
    first = deal(1000, 10, KEY)
    np.testing.assert_array_equal(first, deal(1000, 10, KEY))
    for position in (0, 15, 16, 31):
        other = bytearray(KEY)
        other[position] ^= 1
        assert (first == deal(1000, 10, bytes(other))).mean() < 0.02


def trial_key(trial: int) -> bytes:
    return hashlib.sha256(b"trial %d" % trial).digest()


def test_each_sample_is_equally_likely_in_each_place():
    counts = np.zeros((12, 12))
    for trial in range(TRIALS):
        counts[np.arange(12), deal(12, 4, trial_key(trial)).ravel()] += 1
    expected = TRIALS / 12
    statistic = ((counts - expected) ** 2 / expected).sum()
    # Rows and columns of the table of counts have fixed sums.
    assert statistic < chi2.isf(FALSE_ALARM, 11 * 11)


def test_each_ordered_pair_of_samples_is_equally_likely_for_two_machines():
    counts = np.zeros((8, 8))
    for trial in range(TRIALS):
        first, second = iid_rows(8, 2, 1, trial_key(trial), range(2))[0]
        counts[first, second] += 1
    assert np.all(np.diag(counts) == 0)
    pairs = counts[~np.eye(8, dtype=bool)]
    expected = TRIALS / len(pairs)
    assert ((pairs - expected) ** 2 / expected).sum() < chi2.isf(FALSE_ALARM, len(pairs) - 1)


def test_the_order_is_the_same_for_ever():
    expected = "1ceb7ef3524e4f00"
    assert hashlib.sha256(deal(60_001, 100, KEY).astype("<i8").tobytes()).hexdigest()[:16] == expected


def test_what_cannot_be_dealt():
    with pytest.raises(InputError, match="--machines must be at most 10 "):
        parse_partition("iid").min_samples_per_machine(random_source(1, 10, 2, 2), 11)
    with pytest.raises(InputError, match="--rounds 3"):
        check_enough_samples(3, 3, 4, 4)
