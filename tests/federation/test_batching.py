"""Samples of a round: they depend on machine and round alone, and have their probabilities."""

import math

import numpy as np
import pytest
from helpers.property_tests import given
from hypothesis import strategies as st

from mu2mpi.federation.batching import (
    CyclicBatches,
    DisjointBatches,
    FreshSamples,
    LocalBatches,
    PoissonBatches,
    ReplacementBatches,
    SampledMachines,
)

KEY = bytes(range(32))
BATCHINGS = [
    FreshSamples(12, 12), DisjointBatches.from_batch_ends((1, 1, 4, 9)), ReplacementBatches(7, 4, 5),
    CyclicBatches(7, 4, 3), CyclicBatches(4, 4, 4),
    PoissonBatches(40, 4, 40, probability=0.3), PoissonBatches(5, 4, 5, probability=1.0),
    LocalBatches(7, 4, 15, local_steps=5, local_batch=3), LocalBatches(4, 4, 4, local_steps=5, local_batch=4),
    SampledMachines(7, 4, 6, local_steps=2, local_batch=3, probability=0.5),
    SampledMachines(4, 4, 4, local_steps=2, local_batch=4, probability=1.0),
]  # fmt: skip


@pytest.mark.parametrize("batching", BATCHINGS, ids=repr)
def test_what_a_machine_uses_depends_on_its_number_and_the_round_alone(batching):
    machines, rounds = np.array([4, 0, 5, 4, 2, 0]), np.array([1, 4, 2, 3, 1, 2])
    indices, sizes = batching.batches(KEY, machines, rounds)
    assert set(sizes[sizes > 0]) <= set(range(1, batching.max_batch_size + 1))
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


local = st.tuples(st.integers(1, 12), st.integers(1, 12), st.integers(1, 5), st.integers(1, 9))


@given(local)
def test_local_steps_pass_over_the_samples_in_cyclic_order(sizes):
    """What a round reads are the batches of its steps in turn, each sample once if all are used in each."""
    n, K, H, T = sizes
    K = min(n, K)
    is_full = n == K
    batching = LocalBatches(n, T, n if is_full else H * K, local_steps=H, local_batch=K)
    counts = np.zeros(n, int)
    for t in range(1, T + 1):
        taken = batching.batches(bytes(32), np.array([3, 4]), np.array([t, t]))
        for own in taken.indices.reshape(2, -1):
            steps = [own] * H if is_full else own.reshape(H, K)
            expected = np.arange((t - 1) * H * K, t * H * K).reshape(H, K) % n
            np.testing.assert_array_equal(np.sort(steps) if is_full else steps,
                                          np.sort(expected) if is_full else expected)  # fmt: skip
        np.add.at(counts, expected.ravel(), 1)
        assert batching.max_uses_per_sample(t) == counts.max() == counts[0]
        assert batching.distinct_samples_until(t) == np.count_nonzero(counts)
        assert batching.processed_samples_until(t) == counts.sum()
        assert batching.batch_size(t) == K
        assert batching.samples_per_round == H * K
        same = batching.rounds_with_same_batches(t)
        others = [batching.batches(bytes(32), np.array([0]), np.array([k])) for k in range(t, t + same)]
        assert all(set(other.indices) == set(taken.indices) for other in others)


@pytest.mark.parametrize("q", [0.3, 1 / 3, 0.02])
def test_machines_are_sampled_with_their_probability_and_on_their_own(q):
    """Bounds that a correct sampler exceeds for one key in 10^6 at most, five standard deviations each."""
    machines, rounds = 8, 20_000
    batching = SampledMachines(4, rounds, 4, local_steps=2, local_batch=4, probability=q)
    t = np.repeat(np.arange(1, rounds + 1), machines)
    indices, sizes = batching.batches(KEY, np.tile(np.arange(machines), rounds), t)
    assert set(sizes) == {0, 4}
    assert (np.sort(indices.reshape(-1, 4), axis=1) == np.arange(4)).all()
    present = (sizes > 0).reshape(rounds, machines) - q
    deviation = 5 * math.sqrt(q * (1 - q) / rounds)
    assert np.abs(present.mean(axis=0)).max() < deviation
    # Pairs of machines in a round, and of rounds of a machine, are independent.
    covariance = np.cov(present, rowvar=False)
    others = np.abs(covariance - np.diag(np.diag(covariance)))
    assert others.max() < 5 * q * (1 - q) / math.sqrt(rounds)
    assert np.abs(np.mean(present[1:] * present[:-1], axis=0)).max() < 5 * q * (1 - q) / math.sqrt(rounds)
    assert batching.batch_size(1) == q
    assert batching.processed_samples_until(3) == pytest.approx(3 * q * 8)
    assert batching.max_uses_per_sample(3) == 3
    assert not batching.is_full_batch
    assert batching.description == f"each machine with probability {q:.3g}"


def test_samples_of_a_sampled_machine_go_on_in_cyclic_order():
    """By the round, whether or not the machine took part in those before."""
    batching = SampledMachines(7, 5, 6, local_steps=2, local_batch=3, probability=0.5)
    rounds = np.arange(1, 6)
    indices, sizes = batching.batches(KEY, np.zeros(5, np.int64), rounds)
    assert 0 < np.count_nonzero(sizes) < 5
    expected = [np.arange(6 * (t - 1), 6 * t) % 7 for t in rounds[sizes > 0]]
    np.testing.assert_array_equal(indices.reshape(-1, 6), expected)
