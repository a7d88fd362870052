"""Samples of a round: they depend on machine and round alone, and have their probabilities."""

import math

import numpy as np
import pytest

from mu2mpi.federation.batching import (
    CyclicBatches,
    DisjointBatches,
    FreshSamples,
    PoissonBatches,
    ReplacementBatches,
)

KEY = bytes(range(32))
BATCHINGS = [
    FreshSamples(12, 12), DisjointBatches.from_batch_ends((1, 1, 4, 9)), ReplacementBatches(7, 4, 5),
    CyclicBatches(7, 4, 3), CyclicBatches(4, 4, 4),
    PoissonBatches(40, 4, 40, probability=0.3), PoissonBatches(5, 4, 5, probability=1.0),
]  # fmt: skip


@pytest.mark.parametrize("batching", BATCHINGS, ids=repr)
def test_what_a_machine_uses_depends_on_its_number_and_the_round_alone(batching):
    machines, rounds = np.array([4, 0, 5, 4, 2, 0]), np.array([1, 4, 2, 3, 1, 2])
    indices, sizes = batching.batches(KEY, machines, rounds)
    whole = np.split(indices, np.cumsum(sizes)[:-1])
    for k, found in enumerate(whole):
        alone = batching.batches(KEY, machines[k : k + 1], rounds[k : k + 1])
        np.testing.assert_array_equal(alone.indices, found)
        assert alone.sizes == len(alone.indices) <= batching.max_batch_size
    assert indices.min() >= 0
    assert indices.max() < batching.samples_per_machine


def test_samples_are_drawn_with_their_probabilities():
    """Five standard deviations of a binomial count each, and of the covariance of two."""
    n, rounds = 8, 20_000
    for batching, expected in (
        (ReplacementBatches(n, 1, 3), 3 / n),
        (PoissonBatches(n, 1, n, probability=0.3), 0.3),
    ):
        t = np.repeat(np.arange(1, rounds + 1), 2)
        indices, sizes = batching.batches(KEY, np.tile([3, 4], rounds), t)
        of_round = np.repeat(np.arange(2 * rounds), sizes)
        counts = np.zeros((2 * rounds, n))
        np.add.at(counts, (of_round, indices), 1)
        error = 5 * math.sqrt(expected / (2 * rounds))
        assert np.abs(counts.mean(axis=0) - expected).max() < error
        covariance = np.cov(counts, rowvar=False) - np.diag(np.diag(np.cov(counts, rowvar=False)))
        wanted = -3 / n**2 if isinstance(batching, ReplacementBatches) else 0.0
        assert np.abs(covariance - wanted * (1 - np.eye(n))).max() < error
        # Other machines and other rounds draw for themselves.
        first, second = counts.reshape(rounds, 2, n).transpose(1, 0, 2)
        for one, other in ((first, second), (first[1:], first[:-1])):
            assert np.abs(np.mean((one - expected) * (other - expected))) < error / math.sqrt(n)
