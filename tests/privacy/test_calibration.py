"""Grids on which the sampler's error is negligible: the first choice if it serves, else the nearest."""

import math
from dataclasses import replace

import pytest
from helpers.property_tests import given
from helpers.simulations import make_messages
from hypothesis import strategies as st

from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.execution.plan import open_source, resolve_plan
from mu2mpi.privacy.accounting.gaussian_dp import epsilon_exact
from mu2mpi.privacy.accounting.guarantee import Budget
from mu2mpi.privacy.calibration import adjust_grid, calibrate_mechanism
from mu2mpi.privacy.mechanisms.gaussian_mechanism import GaussianMechanism
from mu2mpi.privacy.noise.grid import check_grid_range, reduce_clip_norm
from mu2mpi.privacy.noise.sampler_error import (
    DITHER_THRESHOLD,
    MIN_STD_UNITS,
    SAMPLER_BUDGET_SHARE,
    is_sampler_negligible,
)

DELTA = 1e-5
BUDGET = Budget(math.inf, math.inf, DELTA)  # of adjustments by the reserve alone
SETTINGS = {"data": "synthetic", "samples": 60_000, "features": 784, "classes": 10}


def gaussian(released_sums, rho):
    return calibrate_mechanism(
        GaussianMechanism, Budget(rho, epsilon_exact(rho, DELTA), DELTA), released_sums
    )


def is_negligible(mechanism):
    guarantee = mechanism.guarantee()
    return is_sampler_negligible(guarantee.epsilon(DELTA), guarantee.epsilon_exact_noise(DELTA), DELTA)


def draw_std(mechanism):
    """Standard deviation of one machine's draw, in grid units."""
    return mechanism.sigma / math.sqrt(mechanism.noise_shares) / mechanism.grid_spacing


# As in the runs of the paper's size that were refused: 6,000 rounds, 7,850 parameters, noise of ten machines.
AGGREGATED = replace(
    make_messages(118.0, 40.0, 7850, 10, 6000), noise_shares=10, affected_sums=6000, is_cumulative=True
)


@given(st.floats(1e-2, 1e2), st.integers(1, 128), st.integers(1, 10**5), st.integers(1, 20_000))
def test_the_sampler_is_negligible_on_some_grid(rho, machines, rounds, d):
    sums = replace(AGGREGATED, machines=machines, noise_shares=machines, rounds=rounds, parameters=d)
    sums = replace(sums, affected_sums=rounds, increments_per_message=rounds)
    try:
        first = gaussian(sums, rho)
    except InputError:
        return
    (mechanism,) = adjust_grid([first], sums, BUDGET)
    assert is_negligible(mechanism)
    assert (mechanism == first) == is_negligible(first)
    assert replace(mechanism, grid_spacing=first.grid_spacing) == first
    assert math.frexp(mechanism.grid_spacing)[0] == 0.5
    assert draw_std(mechanism) >= MIN_STD_UNITS
    check_grid_range(sums, mechanism.sigma, mechanism.grid_spacing)
    assert reduce_clip_norm(mechanism.clip_norm, mechanism.grid_spacing, d) > 0


def test_noise_just_below_the_dither_threshold_takes_the_next_finer_grid():
    first = gaussian(AGGREGATED, rho=0.42)
    assert 0.5 < draw_std(first) / DITHER_THRESHOLD < 1
    assert not is_negligible(first)
    (mechanism,) = adjust_grid([first], AGGREGATED, BUDGET)
    assert mechanism.grid_spacing == first.grid_spacing / 2
    # No more is lost than what any budget reserves.
    exact = mechanism.guarantee().epsilon_exact_noise(DELTA)
    assert mechanism.guarantee().epsilon(DELTA) <= exact * (1 + SAMPLER_BUDGET_SHARE)


def test_a_coarser_grid_serves_where_a_finer_one_would_overflow():
    machines = 2**34
    sums = replace(AGGREGATED, machines=machines, noise_shares=10)
    first = gaussian(AGGREGATED, rho=0.42)
    with pytest.raises(InputError, match="overflow"):
        check_grid_range(sums, first.sigma, first.grid_spacing / 2)
    (mechanism,) = adjust_grid([first], sums, BUDGET)
    assert mechanism.grid_spacing > first.grid_spacing
    assert is_negligible(mechanism)


def test_unequal_machines_keep_one_grid():
    first = [gaussian(AGGREGATED, rho) for rho in (0.42, 0.84, 0.21)]
    grid_spacing = min(each.grid_spacing for each in first)
    first = [each.with_noise(each.sigma, grid_spacing) for each in first]
    assert not all(map(is_negligible, first))
    moved = adjust_grid(first, AGGREGATED, BUDGET)
    assert len({each.grid_spacing for each in moved}) == 1
    assert all(map(is_negligible, moved))
    assert [each.sigma for each in moved] == [each.sigma for each in first]


def test_mechanisms_are_returned_as_they_are_where_no_grid_serves():
    """So much noise is drawn that even the smallest error per draw adds up to more than the reserve."""
    sums = replace(AGGREGATED, parameters=2**40, rounds=2**20, affected_sums=2**20)
    first = replace(gaussian(AGGREGATED, rho=0.42), parameters=2**40, affected_sums=2**20)
    assert adjust_grid([first], sums, BUDGET) == [first]
    assert not is_negligible(first)


def test_a_small_budget_is_kept_where_the_error_is_negligible_but_exceeds_what_remains():
    settings = {"machines": 100, "method": "noisy-minibatch-sgd"}
    experiment = Experiment(**SETTINGS, **settings, epsilon=0.00566398)
    plan = resolve_plan(experiment, open_source(experiment), 1)
    assert plan.privacy_statement.epsilon_exact <= experiment.epsilon


@pytest.fixture(scope="module")
def source():
    return open_source(Experiment(**SETTINGS))


# Without the adjustment, 71 of these runs are refused.
@pytest.mark.parametrize("method", ["mu2-sgd", "accelerated-srgd"])
@pytest.mark.parametrize("machines", [10, 20, 50, 100])
def test_no_run_of_the_papers_size_is_refused_for_the_sampler(source, method, machines):
    for k in range(54):
        settings = {"machines": machines, "server": "aggregated", "epsilon": 0.1 * 1.1**k, "method": method}
        plan = resolve_plan(Experiment(**SETTINGS, **settings), source, 1)
        assert plan.privacy_statement.epsilon_exact <= plan.experiment.epsilon
