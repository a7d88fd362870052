"""When the loss is measured, and that it does not depend on who measures it."""

import numpy as np
import pytest
from helpers import reference as ref
from helpers.property_tests import given
from helpers.simulations import make_schedule
from helpers.sources import random_samples, random_source
from hypothesis import strategies as st

from mu2mpi.core.errors import InputError
from mu2mpi.core.parallel import Communicator
from mu2mpi.core.registry import find
from mu2mpi.execution.evaluation import PIECE, Evaluator, spread_rows
from mu2mpi.execution.measurements import (
    DEFAULT_EVALUATIONS,
    FEWEST_EVALUATIONS,
    FEWEST_SAMPLES,
    FREE,
    MOST_EVALUATIONS,
    Measurements,
    affordable_measurements,
    default_rounds,
    evaluation_cost,
    evaluation_rounds,
    run_cost,
)

SOFTMAX = find("losses", "softmax")


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
    with pytest.raises(InputError):
        evaluation_rounds(2**32 - 1, MOST_EVALUATIONS + 1)


@given(st.integers(1, 300), st.integers(1, 20_000))
def test_no_more_rounds_are_asked_for_than_there_are(rounds, count):
    """Which they are is what they would be if all of them were listed."""
    spaced = np.geomspace(1 if count > 1 else rounds, rounds, count).round().astype(np.int64)
    np.testing.assert_array_equal(evaluation_rounds(rounds, count), np.unique(spaced))
    np.testing.assert_array_equal(evaluation_rounds(rounds, 2**32 - 1), np.arange(1, rounds + 1))


class Part(Communicator):
    """One of several ranks, asked one after the other."""

    def __init__(self, rank: int, size: int, gathered: list) -> None:
        self.rank, self.size, self.gathered = rank, size, gathered

    def gather(self, thing):
        self.gathered.append(thing)
        return self.gathered if len(self.gathered) == self.size else None


@given(st.integers(1, 10**5), st.integers(12, 20))
def test_a_curve_has_at_least_twelve_points_where_there_are_as_many_rounds(rounds, count):
    found = default_rounds(rounds, count)
    assert min(FEWEST_EVALUATIONS, rounds) <= len(found) <= count
    assert found[-1] == rounds


@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(0, 5000))
def test_a_share_has_a_row_of_each_part_however_it_is_asked_for(share, more, start):
    """Rows are different and rise, and those of some places do not depend on who else reads others."""
    whole, start = share + more - 1, min(start, share)
    rows = spread_rows(range(share), share, whole)
    edges = [k * whole // share for k in range(share + 1)]
    assert np.all((rows >= edges[:-1]) & (rows < edges[1:]))
    np.testing.assert_array_equal(spread_rows(range(start, share), share, whole), rows[start:])
    if share == whole:
        np.testing.assert_array_equal(rows, np.arange(whole))


@pytest.mark.parametrize("labels", [np.repeat(np.arange(10), 1000), np.arange(10_000) % 10])
def test_a_share_is_like_the_whole_whatever_its_order(labels):
    counts = np.bincount(labels[spread_rows(range(2000), 2000, 10_000)], minlength=10)
    # Of labels that repeat, a class has 200 with a standard deviation of 13.
    assert abs(counts - 200).max() < 60


def whole_or_share(size, share):
    """Return a source with a test set of this size, what Evaluators are made of, and a model."""
    rng = np.random.default_rng(0)
    source = random_source(1, 10, 6, 4)
    source._test = random_samples(rng, size, 6, 4, np.uint8)
    source.test_samples = size
    return source, {"problem": SOFTMAX, "share": share}, rng.standard_normal((4, 7))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 40])
@pytest.mark.parametrize("share", [None, 3 * PIECE + 1])
def test_loss_has_the_same_bits_for_any_number_of_ranks(size, share):
    source, of, x = whole_or_share(6 * PIECE + 17, share)
    gathered: list = []
    found = [
        Evaluator(source, Part(rank, size, gathered), **of).measure(x, whole=share is None)
        for rank in range(size)
    ][-1]
    rows = (
        np.arange(source.test_samples) if share is None else spread_rows(range(share), share, 6 * PIECE + 17)
    )
    scaled, labels = source._test.features[rows] * source.scale, source._test.labels[rows]
    assert found == Evaluator(source, Communicator(), **of).measure(x, whole=share is None)
    assert found[0] == pytest.approx(ref.mean_loss(x, scaled, labels), rel=1e-12)
    assert found[1] == ref.accuracy(x, scaled, labels)


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
    count, share = affordable_measurements(constants, whole)
    assert FEWEST_EVALUATIONS <= count <= 20
    assert min(whole, FEWEST_SAMPLES) <= share <= whole
    cost = Measurements(np.arange(count), share, whole).cost(constants)
    budget = max(0.1 * run_cost(constants), FREE)
    if share > FEWEST_SAMPLES:
        assert cost <= budget * (1 + 1e-9)
    if share < whole:
        assert count == FEWEST_EVALUATIONS
        assert cost + 11 * evaluation_cost(constants, FEWEST_SAMPLES) > 0.99 * budget


def test_long_runs_and_small_test_sets_are_measured_whole():
    count, share = affordable_measurements(schedule_of("untrusted", 10, 6000), 10_000)
    assert FEWEST_EVALUATIONS < count <= DEFAULT_EVALUATIONS
    assert share == 10_000
    assert affordable_measurements(schedule_of("trusted", 100, 600), 300) == (20, 300)
    assert affordable_measurements(schedule_of("trusted", 100, 600), 10_000) == (12, 2000)
    assert affordable_measurements(schedule_of("trusted", 1, 2), FEWEST_SAMPLES)[1] == FEWEST_SAMPLES


def test_gradients_of_any_size_are_summed():
    """What would leave 64 bits on the usual grid is summed on a wider one."""
    source = random_source(40, 600, 5, 3)
    x = 1e7 * np.random.default_rng(2).standard_normal((1, 6))
    source.take_numbers()
    squared = find("losses", "squared")
    G = squared.constants(6.0, 1e8, 3).G
    _, gradient = Evaluator(source, Communicator(), squared, G=G).gradient(x)
    samples = source.test(np.arange(source.test_samples))
    z = np.hstack([samples.features * source.scale, np.ones((len(samples.labels), 1))])
    plain = ((z @ x.T)[:, 0] - samples.labels) @ z / len(z)
    np.testing.assert_allclose(gradient[0], plain, rtol=1e-6)
