"""Samples of a round: they depend on machine and round alone, and have their probabilities."""

import math

import numpy as np
import pytest

from mu2mpi.federation.batching import Batches, Cyclic, Fresh, Poisson, WithReplacement

KEY = bytes(range(32))
SAMPLINGS = [
    Fresh(12, 12), Batches.until((1, 1, 4, 9)), WithReplacement(7, 4, 5), Cyclic(7, 4, 3), Cyclic(4, 4, 4),
    Poisson(40, 4, 40, probability=0.3), Poisson(5, 4, 5, probability=1.0),
]  # fmt: skip


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=repr)
def test_what_a_machine_uses_depends_on_its_number_and_the_round_alone(sampling):
    rounds = range(1, 5)
    places, sizes = sampling.take(KEY, range(6), rounds)
    whole = np.split(places, np.cumsum(sizes.ravel())[:-1])
    for t in rounds:
        for i in range(6):
            alone = sampling.take(KEY, range(i, i + 1), range(t, t + 1))
            np.testing.assert_array_equal(alone.places, whole[6 * (t - 1) + i])
            assert alone.sizes == len(alone.places) <= sampling.most
    assert places.min() >= 0
    assert places.max() < sampling.owned


def test_samples_are_drawn_with_their_probabilities():
    """Five standard deviations of a binomial count each, and of the covariance of two."""
    n, rounds = 8, 20_000
    for sampling, expected in ((WithReplacement(n, 1, 3), 3 / n), (Poisson(n, 1, n, probability=0.3), 0.3)):
        places, sizes = sampling.take(KEY, range(3, 5), range(1, rounds + 1))
        of_round = np.repeat(np.arange(2 * rounds), sizes.ravel())
        counts = np.zeros((2 * rounds, n))
        np.add.at(counts, (of_round, places), 1)
        error = 5 * math.sqrt(expected / (2 * rounds))
        assert np.abs(counts.mean(axis=0) - expected).max() < error
        covariance = np.cov(counts, rowvar=False) - np.diag(np.diag(np.cov(counts, rowvar=False)))
        wanted = -3 / n**2 if isinstance(sampling, WithReplacement) else 0.0
        assert np.abs(covariance - wanted * (1 - np.eye(n))).max() < error
        # Other machines and other rounds draw for themselves.
        first, second = counts.reshape(rounds, 2, n).transpose(1, 0, 2)
        for one, other in ((first, second), (first[1:], first[:-1])):
            assert np.abs(np.mean((one - expected) * (other - expected))) < error / math.sqrt(n)
