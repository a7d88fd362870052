"""When the loss is measured, and that it does not depend on who measures it."""

import numpy as np
import pytest
from helpers import reference as ref
from helpers.property_tests import given
from helpers.simulations import evaluated_problem
from helpers.sources import random_samples, random_source
from hypothesis import strategies as st

from mu2mpi.core.parallel import Communicator
from mu2mpi.core.registry import lookup
from mu2mpi.execution.evaluation import TEST_BLOCK_ROWS, Evaluator, stratified_test_rows


class Part(Communicator):
    """One of several ranks, asked one after the other."""

    def __init__(self, rank: int, size: int, gathered: list) -> None:
        self.rank, self.size, self.gathered = rank, size, gathered

    def gather(self, thing):
        self.gathered.append(thing)
        return self.gathered if len(self.gathered) == self.size else None


@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(0, 5000))
def test_a_share_has_a_row_of_each_part_however_it_is_asked_for(share, more, start):
    """Rows are different and rise, and those of some places do not depend on who else reads others."""
    whole, start = share + more - 1, min(start, share)
    rows = stratified_test_rows(range(share), share, whole)
    edges = [k * whole // share for k in range(share + 1)]
    assert np.all((rows >= edges[:-1]) & (rows < edges[1:]))
    np.testing.assert_array_equal(stratified_test_rows(range(start, share), share, whole), rows[start:])
    if share == whole:
        np.testing.assert_array_equal(rows, np.arange(whole))


@pytest.mark.parametrize("labels", [np.repeat(np.arange(10), 1000), np.arange(10_000) % 10])
def test_a_share_is_like_the_whole_whatever_its_order(labels):
    counts = np.bincount(labels[stratified_test_rows(range(2000), 2000, 10_000)], minlength=10)
    # Of labels that repeat, a class has 200 with a standard deviation of 13.
    assert abs(counts - 200).max() < 60


def whole_or_share(size, share):
    """Return a source with a test set of this size, what Evaluators are made of, and a model."""
    rng = np.random.default_rng(0)
    source = random_source(1, 10, 6, 4)
    source._test = random_samples(rng, size, 6, 4, np.uint8)
    source.test_samples = size
    of = {"problem": evaluated_problem("softmax"), "sample_size": share}
    return source, of, rng.standard_normal((4, 7))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 40])
@pytest.mark.parametrize("share", [None, 3 * TEST_BLOCK_ROWS + 1])
def test_loss_has_the_same_bits_for_any_number_of_ranks(size, share):
    source, of, x = whole_or_share(6 * TEST_BLOCK_ROWS + 17, share)
    gathered: list = []
    found = [
        Evaluator(source, Part(rank, size, gathered), **of).evaluate(x, on_full_test_set=share is None)
        for rank in range(size)
    ][-1]
    rows = (
        np.arange(source.test_samples)
        if share is None
        else stratified_test_rows(range(share), share, 6 * TEST_BLOCK_ROWS + 17)
    )
    scaled, labels = source._test.features[rows] * source.feature_scale, source._test.labels[rows]
    assert found == Evaluator(source, Communicator(), **of).evaluate(x, on_full_test_set=share is None)
    assert found[0] == pytest.approx(ref.mean_loss(x, scaled, labels), rel=1e-12)
    assert found[1] == ref.accuracy(x, scaled, labels)


def test_gradients_of_any_size_are_summed():
    """What would leave 64 bits on the usual grid is summed on a wider one."""
    source = random_source(40, 600, 5, 3)
    x = 1e7 * np.random.default_rng(2).standard_normal((1, 6))
    source.use_classes_as_numbers()
    squared = lookup("losses", "squared")
    G = squared.constants(6.0, 1e8, 3).G
    _, gradient = Evaluator(source, Communicator(), evaluated_problem("squared", G=G)).gradient(x)
    samples = source.read_test(np.arange(source.test_samples))
    z = np.hstack([samples.features * source.feature_scale, np.ones((len(samples.labels), 1))])
    plain = ((z @ x.T)[:, 0] - samples.labels) @ z / len(z)
    np.testing.assert_allclose(gradient[0], plain, rtol=1e-6)
