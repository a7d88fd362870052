"""What the last iterate reveals: the bound against exact divergences in one dimension."""

import math
from functools import cache, reduce

import numpy as np
import pytest
from hypothesis import strategies as st
from relaxed import given
from scipy.special import expit
from scipy.stats import norm

from mu2mpi.privacy.accountant import gaussian_delta
from mu2mpi.privacy.mechanisms.last_iterate import (
    LANDING,
    halving_steps,
    last_iterate_rho,
    rounding_slack,
)

positive = st.floats(0.01, 10)
runs = st.integers(1, 8).flatmap(
    lambda n: st.tuples(*[st.lists(positive, min_size=n, max_size=n).map(np.array)] * 2)
)


def test_steps_halve_as_their_source_says():
    """T_i = T - ceil(T / 2^i) until T / 2^i <= 1, then T; steps T_i < t <= T_{i+1} have 2^-i."""
    for T in (*range(1, 70), 1000, 1024, 1025):
        k = next(i for i in range(100) if T / 2**i <= 1)
        ends = [T - math.ceil(T / 2**i) for i in range(k + 1)] + [T]
        wanted = [2.0**-i for i in range(k + 1) for _ in range(ends[i], ends[i + 1])]
        np.testing.assert_array_equal(halving_steps(T), wanted)


@given(runs, st.floats(0, 2), max_examples=100)
def test_the_bound_holds_on_parabolas_and_is_exact_on_lines(run, curvature):
    """Steps w - eta (curvature w - z) with noise: the last iterate is normal, and its mean moves linearly.

    A sample moves it by eta when it is used, and each later step shrinks that by |1 - eta curvature|.
    """
    etas, noises = run
    etas = etas / max(1.0, etas.max() * curvature / 2)
    deviations = etas * noises
    shrinkage = np.abs(1 - etas * curvature)
    # What is left in the end of a change in each step.
    left = np.append(np.cumprod(shrinkage[:0:-1])[::-1], 1.0)
    deviation = math.sqrt(np.sum((deviations * left) ** 2))
    exact = etas * left / deviation
    bound = last_iterate_rho(etas, deviations)
    assert np.all(exact <= bound * (1 + 1e-9))
    if curvature == 0:
        # The noise before a step hides what it moves too: only that of the first is hidden by all there is.
        assert exact[0] == pytest.approx(bound[0])


@cache
def transition(label, eta, sigma, radius):
    """Return the probabilities of a noisy logistic step between points of [-radius, radius].

    The ends of the interval hold what is projected on them.
    """
    nodes = np.linspace(-radius, radius, 601)
    assert eta * sigma > 5 * (nodes[1] - nodes[0])
    means = nodes - eta * (expit(nodes) - label)
    edges = (nodes[:-1] + nodes[1:]) / 2
    cumulative = norm.cdf((edges[np.newaxis] - means[:, np.newaxis]) / (eta * sigma))
    return np.diff(cumulative, prepend=0.0, append=1.0, axis=1)


@pytest.mark.parametrize(("eta", "sigma", "radius"), [(1.0, 1.0, 3.0), (4.0, 0.3, 1.5), (0.1, 2.0, 5.0)])
@pytest.mark.parametrize("position", [0, 2, 5])
def test_the_bound_holds_for_logistic_losses_on_an_interval(eta, sigma, radius, position):
    """Privacy losses by numerical integration, for a loss with no closed form and a projection.

    A gradient is p - label, so another label moves a step by eta. The losses are 1/4-smooth: eta <= 8.
    """
    labels = [1, 0, 0, 1, 1, 1]
    other = [label ^ (t == position) for t, label in enumerate(labels)]
    start = np.eye(601)[300]
    one, two = (
        reduce(np.matmul, [transition(label, eta, sigma, radius) for label in of], start)
        for of in (labels, other)
    )
    rho = last_iterate_rho(np.full(6, eta), np.full(6, eta * sigma))[position]
    assert 0 < np.sum(np.abs(one - two)) / 2 <= math.erf(rho / math.sqrt(8)) * (1 + 1e-3)
    for p, q in ((one, two), (two, one)):
        for order in (2.0, 8.0):
            there = (p > 1e-250) & (q > 1e-250)
            divergence = math.log(np.sum(p[there] ** order * q[there] ** (1 - order))) / (order - 1)
            assert divergence <= order * rho**2 / 2 * (1 + 1e-3)
        for epsilon in (0.0, 0.5, 2.0):
            delta = np.sum(np.maximum(p - math.exp(epsilon) * q, 0))
            assert delta <= gaussian_delta(epsilon, rho) * (1 + 1e-3) + 1e-12


@given(runs, st.lists(st.floats(0, 0.5), min_size=8, max_size=8), max_examples=50)
def test_slack_is_paid_for_where_it_arises(run, slacks):
    """No division of moves and slacks that pays in time costs less than half of the bound's square."""
    moves, deviations = run
    slacks = np.array(slacks[: len(moves)])
    bound = last_iterate_rho(moves, deviations, slacks)
    np.testing.assert_array_less(last_iterate_rho(moves, deviations) * (1 - 1e-12), bound)
    for t, move in enumerate(moves):
        later = deviations[t:]
        shares = move * later**2 / np.sum(later**2) + slacks[t:]
        # At each step no more is paid than has arisen, and in the end all is.
        arisen = move + np.cumsum(slacks[t:])
        assert np.all(np.cumsum(shares) <= arisen * (1 + 1e-12))
        assert shares.sum() == pytest.approx(arisen[-1])
        assert math.sqrt(np.sum((shares / later) ** 2)) <= bound[t] * (1 + 1e-12)


def test_slack_of_rounding():
    """Each of two runs rounds each coordinate of 6 gradients and one draw by half a unit."""
    slack = rounding_slack(np.array([1.0, 0.5]), np.array([6, 2]), 0.25, 9)
    np.testing.assert_allclose(slack, 0.25 * 3 * np.array([6.0, 0.5 * 2 + 1.0 + 0.5 * LANDING]))
