"""When the loss is measured, and that it does not depend on who measures it."""

import numpy as np
import pytest
import reference as ref
from arrays import random_samples, random_source
from hypothesis import strategies as st
from relaxed import given
from schedules import make_schedule

from mu2mpi.errors import InputError
from mu2mpi.execution.evaluation import (
    MOST_EVALUATIONS,
    PIECE,
    Evaluator,
    affordable_evaluations,
    evaluation_rounds,
)
from mu2mpi.parallel import Communicator
from mu2mpi.registry import find

SOFTMAX = find("problems", "softmax")


@given(st.integers(1, 10**6), st.integers(1, 200))
def test_rounds_are_increasing_and_end_with_the_last(rounds, count):
    found = evaluation_rounds(rounds, count)
    assert found[-1] == rounds
    assert len(found) <= count
    assert np.all(np.diff(found) > 0)
    assert found[0] >= 1


def test_rounds_are_logarithmically_spaced():
    np.testing.assert_array_equal(evaluation_rounds(10_000, 5), [1, 10, 100, 1000, 10_000])
    np.testing.assert_array_equal(evaluation_rounds(10_000, 1), [10_000])
    assert len(evaluation_rounds(60_000, 20)) == 20


@given(st.integers(1, 300), st.integers(1, 20_000))
def test_no_more_rounds_are_asked_for_than_there_are(rounds, count):
    """Which they are is what they would be if all of them were listed."""
    spaced = np.geomspace(1 if count > 1 else rounds, rounds, count).round().astype(np.int64)
    np.testing.assert_array_equal(evaluation_rounds(rounds, count), np.unique(spaced))
    np.testing.assert_array_equal(evaluation_rounds(rounds, 2**32 - 1), np.arange(1, rounds + 1))


def test_rounds_that_no_memory_holds_are_refused():
    assert len(evaluation_rounds(2**32 - 1, MOST_EVALUATIONS)) > MOST_EVALUATIONS / 2
    with pytest.raises(InputError, match="evaluations = 1,000,001 in 4,294,967,295 rounds are too many"):
        evaluation_rounds(2**32 - 1, MOST_EVALUATIONS + 1)


class Part(Communicator):
    """One of several ranks, asked one after the other."""

    def __init__(self, rank: int, size: int, gathered: list) -> None:
        self.rank, self.size, self.gathered = rank, size, gathered

    def gather(self, thing):
        self.gathered.append(thing)
        return self.gathered if len(self.gathered) == self.size else None


@pytest.mark.parametrize("size", [1, 2, 3, 7, 40])
def test_loss_has_the_same_bits_for_any_number_of_ranks(size):
    rng = np.random.default_rng(0)
    source = random_source(1, 10, 6, 4)
    source._test = random_samples(rng, 6 * PIECE + 17, 6, 4, np.uint8)
    source.test_samples = len(source._test)
    x = rng.standard_normal((4, 7))
    gathered: list = []
    found = [Evaluator(source, Part(rank, size, gathered), SOFTMAX).measure(x) for rank in range(size)][-1]
    scaled = source._test.features * source.scale
    assert found == Evaluator(source, Communicator(), SOFTMAX).measure(x)
    assert found[0] == pytest.approx(ref.mean_loss(x, scaled, source._test.labels), rel=1e-12)
    assert found[1] == ref.accuracy(x, scaled, source._test.labels)


def schedule_of(server, machines, rounds):
    return make_schedule(
        server=server, machines=machines, rounds=rounds, classes=10, features=785, diameter=0.1, rho=4.0
    )


def test_evaluations_take_a_small_share():
    assert 10 <= affordable_evaluations(schedule_of("untrusted", 10, 6000), 10_000) <= 20
    assert 3 <= affordable_evaluations(schedule_of("trusted", 100, 600), 10_000) < 20
    assert affordable_evaluations(schedule_of("trusted", 100, 600), 300) == 20


def test_gradients_of_any_size_are_summed():
    """What would leave 64 bits on the usual grid is summed on a wider one."""
    source = random_source(40, 600, 5, 3)
    x = 1e7 * np.random.default_rng(2).standard_normal((1, 6))
    source.take_numbers()
    squared = find("problems", "squared")
    G = squared.constants(6.0, 1e8, 3).G
    _, gradient = Evaluator(source, Communicator(), squared, G=G).gradient(x)
    samples = source.test(np.arange(source.test_samples))
    z = np.hstack([samples.features * source.scale, np.ones((len(samples), 1))])
    plain = ((z @ x.T)[:, 0] - samples.labels) @ z / len(z)
    np.testing.assert_allclose(gradient[0], plain, rtol=1e-6)
