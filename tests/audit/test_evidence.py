"""Bounds from below against the distributions from which they were made, whose privacy is known."""

import math
from statistics import NormalDist

import numpy as np
import pytest
from helpers.noise_attack import add_byte_counts, low_bit_faults, standard_scores
from helpers.property_tests import given
from hypothesis import strategies as st
from scipy.stats import beta, binom

from mu2mpi.audit.attacks.mask_attack import MAX_MACHINE_GROUPS, MachineGroup, machine_groups
from mu2mpi.audit.evidence import (
    MIN_TEST_BYTES,
    MeanSeparation,
    clopper_pearson_upper,
    epsilon_lower_bound,
    fisher_discriminants,
    uneven_byte_evidence,
)
from mu2mpi.privacy.accounting.gaussian_dp import epsilon_exact


@given(st.integers(1, 100_000), st.floats(0, 1), st.floats(1e-6, 0.5), max_examples=50)
def test_largest_probability_is_a_quantile_of_the_beta_distribution(trials, share, risk):
    successes = round(share * trials)
    found = clopper_pearson_upper(successes, trials, risk)
    expected = 1.0 if successes == trials else beta.ppf(1 - risk, successes + 1, trials - successes)
    assert found == pytest.approx(expected, rel=1e-6)
    assert successes == trials or binom.cdf(successes, trials, found) <= risk * (1 + 1e-6)


def outside(hits: int, repeats: int, probability: float) -> bool:
    """Return whether so few hits have a chance below 1e-6 if each has at least this probability."""
    return binom.cdf(hits, repeats, probability) < 1e-6


def fair_bits(rng, runs, pairs):
    half = rng.integers(0, 2, (runs // 2, pairs)).astype(bool)
    return np.concatenate([half, ~half])


@pytest.mark.parametrize("mu", [0.0, 1.0, 4.0])
def test_the_interval_of_mu_holds_mu_as_often_as_it_says(mu):
    rng = np.random.default_rng(1)
    variants = fair_bits(rng, 400, 1000)
    separations = MeanSeparation(rng.normal(0, 3, variants.shape) + 3 * mu * variants, variants)
    intervals = separations.weighted_sums(np.eye(1000), 0.025)
    held = sum(interval.low <= mu <= interval.high for interval in intervals)
    # The interval is that of a large number of runs: with 400 it may err a little more often.
    assert not outside(held, 1000, 0.94)
    assert outside(held, 1000, 0.985)
    assert np.mean(separations.mu) == pytest.approx(mu, abs=0.03)


def test_intervals_of_sums_hold_them_if_pairs_share_their_noise():
    """As do the sums of one machine that tell of its samples in different rounds."""
    rng, held, weights = np.random.default_rng(7), 0, np.array([[0.5, 0.3, 0.2]])
    for _ in range(1000):
        variants = fair_bits(rng, 400, 3)
        scores = rng.normal(0, 1, (400, 1)) + variants * np.array([1.0, 2.0, 3.0])
        (interval,) = MeanSeparation(scores, variants).weighted_sums(weights, 0.025)
        held += interval.low <= 1.7 <= interval.high
    assert not outside(held, 1000, 0.94)
    assert outside(held, 1000, 0.985)


@pytest.mark.slow
@pytest.mark.parametrize("delta", [1e-5, 0.1])
def test_the_bound_on_epsilon_is_below_it_as_often_as_it_says(delta):
    """Randomised response gives the other answer with probability (1 - delta) / (1 + e^epsilon)."""
    rng = np.random.default_rng(2)
    epsilon, n = 2.0, 1000
    lie = (1 - delta) / (1 + math.exp(epsilon))
    bounds = []
    for _ in range(1000):
        learning, judged = ([(rng.random(n) < p).astype(float) for p in (lie, 1 - lie)] for _ in range(2))
        bounds.append(epsilon_lower_bound(learning, judged, delta, 0.05))
    assert not outside(sum(bound <= epsilon for bound in bounds), 1000, 0.95)
    assert np.mean(bounds) > 0.8 * epsilon


@pytest.mark.parametrize("mu", [0.5, 1.0, 2.0])
def test_the_bound_on_epsilon_of_a_gaussian_mechanism(mu):
    rng = np.random.default_rng(3)
    delta = 0.01
    bounds = []
    for _ in range(50):
        chosen, judged = ([rng.normal(0, 1, 4000), rng.normal(mu, 1, 4000)] for _ in range(2))
        bounds.append(epsilon_lower_bound(chosen, judged, delta, 0.05))
    epsilon = epsilon_exact(mu, delta)
    assert not outside(sum(bound <= epsilon for bound in bounds), 50, 0.95)
    # Counting finds much less than there is, but no trifle.
    assert np.mean(bounds) > 0.5 * epsilon


@given(st.integers(0, 2**31), st.integers(2, 8), max_examples=20)
def test_the_best_statistic_is_that_of_the_likelihood_ratio(seed, numbers):
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((numbers, numbers)) + 2 * np.eye(numbers)
    difference = rng.standard_normal(numbers)
    noise = rng.standard_normal((40_000, numbers)) @ root.T
    (weights,) = fisher_discriminants(noise, difference[np.newaxis])
    covariance = root @ root.T
    reached = weights @ difference / math.sqrt(weights @ covariance @ weights)
    best = math.sqrt(difference @ np.linalg.solve(covariance, difference))
    assert 0.99 * best < reached < best * (1 + 1e-9)


def told_apart(seen, variants, difference):
    """Return the mu of the best statistic of one pair, learnt from what judges it."""
    weights = fisher_discriminants(seen - variants * difference, difference[np.newaxis])
    return MeanSeparation(seen @ weights.T, variants).weighted_sums(np.eye(1), 1e-5)[0]


def test_noise_that_two_numbers_share_hides_nothing():
    rng = np.random.default_rng(4)
    variants, difference = fair_bits(rng, 1000, 1), np.array([0.0, 1e-3])
    seen = np.repeat(rng.standard_normal((1000, 1)), 2, axis=1) + variants * difference
    assert told_apart(seen, variants, difference).low > 100


def test_what_has_no_noise_at_all_is_told_apart():
    variants = fair_bits(np.random.default_rng(5), 100, 1)
    seen = np.repeat(variants, 2, axis=1).astype(float)
    assert told_apart(seen, variants, np.ones(2)).low > 1e6
    scores = [np.zeros(50), np.ones(50)]
    assert epsilon_lower_bound(scores, scores, 1e-5, 0.05) > 2


def test_what_does_not_differ_gives_nothing_away():
    variants, same = fair_bits(np.random.default_rng(6), 100, 1), np.zeros(50)
    (interval,) = MeanSeparation(np.ones((100, 1)), variants).weighted_sums(np.eye(1), 1e-5)
    assert (interval.low, interval.high) == (0, 0)
    assert epsilon_lower_bound([same, same], [same, same], 1e-5, 0.05) == 0


def test_uniform_bytes_are_complained_of_no_more_often_than_is_stated():
    rng = np.random.default_rng(8)
    for n, tests in ((MIN_TEST_BYTES, 8), (700, 16)):
        found = [uneven_byte_evidence(rng.integers(-(2**63), 2**63, n)).max() for _ in range(1000)]
        for risk in (0.5, 0.1, 0.01, 0.002):
            assert binom.sf(np.sum(np.array(found) > math.log(tests / risk)) - 1, 1000, risk) > 1e-6
        skewed = rng.integers(-(2**63), 2**63, n)
        skewed[: n // 4] &= ~(np.int64(255) << 24)
        assert uneven_byte_evidence(skewed).argmax() % 8 == 3
        assert uneven_byte_evidence(skewed).max() > 30


@pytest.mark.parametrize("scale", [2.0**5, 2.0**12, 2.0**20.3, 2.0**30.5])
def test_low_bits_of_ideal_normals_are_complained_of_no_more_often_than_is_stated(scale):
    rng, problems = np.random.default_rng(10), 0
    for _ in range(100):
        counts, noise = np.zeros((5, 256), np.int64), np.rint(rng.standard_normal(40_000) * scale)
        for rows, words in (
            (counts[:3], noise),
            (counts[3:4], np.diff(noise)),
            (counts[4:], noise[128:] - noise[:-128]),
        ):
            add_byte_counts(rows, words.astype(np.int64))
        problems += bool(low_bit_faults(counts, scale, 0.1))
    assert binom.sf(problems - 1, 100, 0.1) > 1e-6


def test_sums_of_squares_of_ideal_normals_pass_a_limit_no_more_often_than_is_stated():
    rng = np.random.default_rng(7)
    for n in (300, 10_000):
        far = np.abs(standard_scores(rng.chisquare(n, 100_000), n))
        for risk in (1e-2, 1e-3):
            assert (
                binom.sf(int(np.sum(far > NormalDist().inv_cdf(1 - risk / 2))) - 1, 100_000, risk * 1.2)
                > 1e-6
            )


def test_groups_are_all_there_are_or_of_all_sizes():
    assert set(machine_groups(4, 1, bytes(32))) == {
        MachineGroup((i,), (j,)) for i in range(4) for j in range(4) if i != j
    }
    many = list(machine_groups(40, 5, bytes(32)))
    assert len(many) == MAX_MACHINE_GROUPS
    for group in many:
        assert len(group.colluders) == 5
        assert len({*group.machines, *group.colluders}) == len(group.machines) + 5
    assert {1, 2}.issubset(sizes := {len(group.machines) for group in many})
    assert max(sizes) > 10
    assert list(machine_groups(3, 2, bytes(32))) == []
