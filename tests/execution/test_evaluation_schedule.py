"""Rounds in which a run measures, and what evaluations may cost."""

import numpy as np
import pytest
from helpers.property_tests import given
from helpers.simulations import make_schedule
from hypothesis import strategies as st

from mu2mpi.core.errors import InputError
from mu2mpi.execution.evaluation_schedule import (
    DEFAULT_EVALUATIONS,
    MAX_EVALUATIONS,
    MIN_EVALUATION_BUDGET_NS,
    MIN_EVALUATIONS,
    MIN_TEST_SAMPLES,
    EvaluationSchedule,
    affordable_evaluations,
    default_evaluation_rounds,
    evaluation_cost_ns,
    evaluation_rounds,
    run_cost_ns,
)


@given(st.integers(1, 10**6), st.integers(1, 200))
def test_rounds_are_increasing_and_end_with_the_last(rounds, count):
    found = evaluation_rounds(rounds, count)
    assert found[-1] == rounds
    assert len(found) <= count
    assert np.all(np.diff(found) > 0)
    assert found[0] >= 1


def test_rounds_are_logarithmically_spaced_and_fit_into_memory():
    np.testing.assert_array_equal(evaluation_rounds(10_000, 5), [1, 10, 100, 1000, 10_000])
    np.testing.assert_array_equal(evaluation_rounds(10_000, 1), [10_000])
    limit = "must be at most 100,000 in a run of 1,000,000 rounds, got 1,000,000"
    assert MAX_EVALUATIONS == 100_000
    with pytest.raises(InputError, match=limit):
        evaluation_rounds(10**6, 10**6)
    assert len(evaluation_rounds(10**6, MAX_EVALUATIONS)) < 60_000


@given(st.integers(1, 300), st.integers(1, 20_000))
def test_no_more_rounds_are_asked_for_than_there_are(rounds, count):
    """Which they are is what they would be if all of them were listed."""
    spaced = np.geomspace(1 if count > 1 else rounds, rounds, count).round().astype(np.int64)
    np.testing.assert_array_equal(evaluation_rounds(rounds, count), np.unique(spaced))
    np.testing.assert_array_equal(evaluation_rounds(rounds, 2**32 - 1), np.arange(1, rounds + 1))


@given(st.integers(1, 10**5), st.integers(12, 20))
def test_a_curve_has_at_least_twelve_points_where_there_are_as_many_rounds(rounds, count):
    found = default_evaluation_rounds(rounds, count)
    assert min(MIN_EVALUATIONS, rounds) <= len(found) <= count
    assert found[-1] == rounds


def schedule_of(server, machines, rounds):
    return make_schedule(
        server=server, machines=machines, rounds=rounds, classes=10, features=785, diameter=0.1, rho=4.0
    )


@given(
    st.sampled_from(["untrusted", "trusted"]),
    st.integers(1, 200),
    st.integers(1, 5000),
    st.integers(1, 10**6),
)
def test_evaluations_take_a_small_share_of_the_time(server, machines, rounds, whole):
    """But for 11 on a small share, and the last, which is of all."""
    constants = schedule_of(server, machines, rounds)
    count, share = affordable_evaluations(constants, whole)
    assert MIN_EVALUATIONS <= count <= 20
    assert min(whole, MIN_TEST_SAMPLES) <= share <= whole
    cost = EvaluationSchedule(np.arange(count), share, whole).cost(constants)
    budget = max(0.1 * run_cost_ns(constants), MIN_EVALUATION_BUDGET_NS)
    if share > MIN_TEST_SAMPLES:
        assert cost <= budget * (1 + 1e-9)
    if share < whole:
        assert count == MIN_EVALUATIONS
        assert cost + 11 * evaluation_cost_ns(constants, MIN_TEST_SAMPLES) > 0.99 * budget


def test_long_runs_and_small_test_sets_are_measured_whole():
    count, share = affordable_evaluations(schedule_of("untrusted", 10, 6000), 10_000)
    assert MIN_EVALUATIONS < count <= DEFAULT_EVALUATIONS
    assert share == 10_000
    assert affordable_evaluations(schedule_of("trusted", 100, 600), 300) == (20, 300)
    assert affordable_evaluations(schedule_of("trusted", 100, 600), 10_000) == (12, 2000)
    assert affordable_evaluations(schedule_of("trusted", 1, 2), MIN_TEST_SAMPLES)[1] == MIN_TEST_SAMPLES
