"""The exact account of samples drawn with replacement, against integrals and draws of the privacy loss."""

import math

import numpy as np
import pytest
from scipy.stats import binom, norm

from mu2mpi.privacy.mechanisms.replacement_exact_mechanism import ReplacementExactMechanism, hockey_stick

EPSILONS = np.array([0.0, 0.003, 0.05, 0.3, 1.0, 2.5])


def divergences(own, other, rest, samples, drawn, sigma):
    """Return delta at each epsilon, by integration over the line, of sums with one sample or another.

    The sample's term is `own` or `other`, and that of each of the others is `rest`; C is 1.
    """
    j = np.arange(drawn + 1)
    often = binom.pmf(j, drawn, 1 / samples)
    reach = drawn + 10 * sigma
    x, width = np.linspace(-reach, reach, 40_001, retstep=True)
    p, q = (
        often @ norm.pdf(x, (j * term + (drawn - j) * rest)[:, np.newaxis], sigma) for term in (own, other)
    )
    return np.maximum(p - np.exp(EPSILONS)[:, np.newaxis] * q, 0).sum(axis=1) * width


@pytest.mark.parametrize(("samples", "drawn"), [(1, 1), (2, 1), (6, 4), (50, 1), (50, 8), (3, 3)])
@pytest.mark.parametrize("sigma", [0.8, 3.0])
def test_no_samples_on_a_line_are_told_apart_better_in_one_round(samples, drawn, sigma):
    bound = hockey_stick(EPSILONS, sigma, samples, drawn)
    rng = np.random.default_rng(1)
    for own, other, rest in [(1, -1, 0), (1, -1, -1), (-1, 1, -1), *rng.uniform(-1, 1, (20, 3))]:
        assert np.all(divergences(own, other, rest, samples, drawn, sigma) <= bound * (1 + 1e-6) + 1e-12)


@pytest.mark.parametrize(("samples", "drawn"), [(2, 1), (50, 1), (50, 8), (600, 3)])
def test_where_all_others_are_opposite_the_bound_is_reached(samples, drawn):
    """With one draw at every epsilon, and with more where a sample that is drawn twice is told by both."""
    bound = hockey_stick(EPSILONS, 1.5, samples, drawn)
    reached = divergences(1, -1, -1, samples, drawn, 1.5)
    far = slice(4 if drawn > 1 else 0, None)
    np.testing.assert_allclose(reached[far], bound[far], rtol=1e-5, atol=1e-13)
    assert np.all(reached > 0.9 * bound)


@pytest.mark.parametrize(("samples", "drawn", "rounds", "sigma"), [(40, 1, 60, 1.0), (40, 5, 20, 2.0)])
def test_draws_of_the_loss_of_all_rounds_do_not_exceed_it(samples, drawn, rounds, sigma):
    """At delta = 0.01, with 100,000 draws: five standard errors; a third of epsilon is exceeded."""
    rng, delta, draws = np.random.default_rng(2), 0.01, 100_000
    j = np.arange(drawn + 1)
    often = binom.pmf(j, drawn, 1 / samples)
    losses = np.zeros(draws)
    for _ in range(rounds):
        y = 2 * rng.binomial(drawn, 1 / samples, draws) + sigma * rng.standard_normal(draws)
        ratios = np.exp((4 * j * y[:, np.newaxis] - 4 * j**2) / (2 * sigma**2))
        losses += np.log(ratios @ often)
    epsilon = ReplacementExactMechanism.compute_epsilon(1.0, samples, drawn, rounds, sigma, delta)
    for share, is_private in ((1.0, True), (1 / 3, False)):
        exceeded = np.maximum(0, -np.expm1(share * epsilon - losses))
        error = 5 * exceeded.std() / math.sqrt(draws)
        assert (exceeded.mean() - error < delta) == is_private


def test_there_is_no_more_noise_than_is_needed():
    sigma = ReplacementExactMechanism.find_sigma(3.0, 40, 2, 60, 1.0, 1e-5, 0.1)
    assert ReplacementExactMechanism.compute_epsilon(3.0, 40, 2, 60, sigma, 0.9e-5) <= 0.9
    assert ReplacementExactMechanism.compute_epsilon(3.0, 40, 2, 60, sigma * 0.999, 0.9e-5) > 0.9
