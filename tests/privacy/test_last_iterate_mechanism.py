"""Batches that grow, and the least noise with which the last iterate keeps to rho."""

import math

import numpy as np
import pytest
from helpers.property_tests import given
from hypothesis import strategies as st

from mu2mpi.methods.snowball_sgd import CLIP_NORM_OVER_G
from mu2mpi.privacy.accounting.guarantee import Budget, GaussianGuarantee
from mu2mpi.privacy.mechanisms.last_iterate_mechanism import (
    LAST_STEP_COARSENING,
    ROUNDOFF_RHO_SHARE,
    LastIterateMechanism,
    final_batch_size,
    growing_batch_sizes,
    halving_step_sizes,
    last_iterate_rho,
    rho_per_step,
    rounding_expansions,
)
from mu2mpi.privacy.released_sums import ReleasedSums


def calibrated(rounds, machines, d, rho, G=3.0):
    """Return the mechanism for gradients of norm G, which rounding leaves unclipped."""
    batches = growing_batch_sizes(rounds - 1, final_batch_size(machines, d, rho))
    messages = ReleasedSums(
        rounds=rounds, machines=machines, parameters=d, clip_norm=G * CLIP_NORM_OVER_G, max_gradient_norm=G,
        affected_sums=1, increments_per_message=int(batches.max()), samples=int(batches.sum()),
        batch_size=float(batches[0]), hides_iterates=True,
    )  # fmt: skip
    return LastIterateMechanism.calibrate(Budget(rho, math.nan, 1e-5), messages)


def test_rounds_before_the_last_show_nothing():
    mechanism = calibrated(6, 2, 4, 0.5)
    assert [mechanism.guarantee(t) for t in range(6)] == [GaussianGuarantee(0.0)] * 6
    assert mechanism.guarantee(6) == mechanism.guarantee()
    assert [mechanism.rho_spent(t) for t in range(7)] == [0.0] * 6 + [0.5]
    # Each step has noise in proportion to its batch, and the last round takes none.
    noise = [mechanism.sigma * int(size) for size in mechanism.batch_sizes]
    assert [mechanism.round_sigma(t) for t in range(1, 7)] == [*noise, 0.0]


@given(st.integers(1, 300), st.integers(1, 50), st.integers(2, 5000), st.floats(0.05, 100), max_examples=50)
def test_batches_and_noise_keep_to_rho(steps, machines, d, rho):
    """Against the inequality for each step by itself; rounding costs next to nothing."""
    growth = final_batch_size(machines, d, rho)
    batches = growing_batch_sizes(steps, growth)
    mechanism = calibrated(steps + 1, machines, d, rho)
    C, noise, grid_spacing = mechanism.clip_norm, mechanism.sigma / machines, mechanism.grid_spacing
    np.testing.assert_array_equal(mechanism.batch_sizes, batches)
    assert mechanism.final_batch == growth
    assert mechanism.guarantee().rho == pytest.approx(rho, rel=1e-12)
    assert noise <= C / math.sqrt(d) * (1 + 4e-4)
    exact = rho_per_step(batches, machines, 2 * C, noise, grid_spacing, d).max()
    assert exact * (1 + ROUNDOFF_RHO_SHARE) == pytest.approx(rho, rel=1e-12)
    eta = halving_step_sizes(steps)
    for t in range(steps):
        left = math.sqrt(np.sum(eta[t:] ** 2))
        assert 2 * C * eta[t] / (machines * batches[t]) <= rho * left * noise
        if batches[t] > 1:
            most = rho * left * C / math.sqrt(d)
            assert 2 * C * eta[t] / (machines * (batches[t] - 1)) > most * (1 - 1e-12)


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
        np.testing.assert_array_equal(halving_step_sizes(T), wanted)


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
    slack = rounding_expansions(np.array([1.0, 0.5]), np.array([6, 2]), 0.25, 9)
    np.testing.assert_allclose(slack, 0.25 * 3 * np.array([6.0, 0.5 * 2 + 1.0 + 0.5 * LAST_STEP_COARSENING]))
