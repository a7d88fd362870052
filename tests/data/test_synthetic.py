"""The synthetic population."""

import hashlib
import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import chi2, kstest

from mu2mpi.data.sources import synthetic
from mu2mpi.data.sources.synthetic import Synthetic

# Seeds are fixed; a correct population would fail for about one choice of seeds in a million.
FALSE_ALARM = 1e-6


def probabilities_of(source, features):
    """Return the true probability of each class for each of some samples."""
    cumulative = source._cumulative_class_weights(features)
    return np.diff(cumulative, axis=1, prepend=0.0) / cumulative[:, -1:]


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_a_row_depends_on_nothing_but_its_number(data):
    features, classes = data.draw(st.integers(1, 3000) | st.just(100_000)), data.draw(st.integers(2, 50))
    seed = data.draw(st.integers(0, 2**63 - 1))
    rows = np.array(data.draw(st.lists(st.integers(0, 2999), min_size=1, max_size=8)))
    everything = Synthetic(3000, features, classes, seed)
    together = everything.read_training(rows)
    assert together.features.shape == (len(rows), features)
    cumulative = everything._cumulative_class_weights(together.features)
    for position, row in enumerate(rows):
        # A larger set, and no neighbours.
        alone = Synthetic(10**9, features, classes, seed).read_training(np.array([row]))
        np.testing.assert_array_equal(alone.features[0], together.features[position])
        np.testing.assert_array_equal(
            everything._cumulative_class_weights(alone.features)[0], cumulative[position]
        )
        assert alone.labels[0] == together.labels[position]


def test_the_bits_are_the_same_for_ever():
    samples = Synthetic(10_000, 20, 3, data_seed=0).read_training(np.arange(10_000))
    digest = hashlib.sha256(samples.features.tobytes() + samples.labels.tobytes()).hexdigest()
    assert digest[:16] == "7171ffe4cf53ec2c"


def test_training_and_test_samples_and_seeds_differ():
    rows = np.arange(1000)
    sets = [
        Synthetic(5000, 20, 3, 0).read_training(rows).features,
        Synthetic(5000, 20, 3, 0).read_test(rows).features,
        Synthetic(5000, 20, 3, 1).read_training(rows).features,
        Synthetic(5000, 20, 3, 2**62).read_training(rows).features,
    ]
    for i, first in enumerate(sets):
        assert len(np.unique(first)) > 0.99 * first.size, "no value is drawn twice, but for chance"
        for second in sets[i + 1 :]:
            assert np.mean(first == second) < 1e-3


def test_features_are_uniform_and_independent():
    features = Synthetic(50_000, 10, 3, data_seed=3).read_training(np.arange(50_000)).features
    assert features.min() >= -1
    assert features.max() < 1
    for column in features.T:
        assert kstest(column, "uniform", (-1, 2)).pvalue > FALSE_ALARM / 10
    correlation = np.corrcoef(features.T)[np.triu_indices(10, 1)]
    assert np.abs(correlation).max() < 5.5 / math.sqrt(50_000)
    shifted = np.mean(features[1:] * features[:-1], axis=0) * 3
    assert np.abs(shifted).max() < 5.5 / math.sqrt(50_000)


@pytest.mark.parametrize(("features", "classes"), [(20, 2), (20, 3), (1, 5), (784, 10)])
def test_labels_are_drawn_with_their_probabilities(features, classes):
    source = Synthetic(20_000, features, classes, data_seed=11)
    samples = source.read_training(np.arange(20_000))
    probabilities = probabilities_of(source, samples.features)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-12)
    # Cells by class and by how probable the class was: what was drawn against what was expected.
    drawn = np.eye(classes)[samples.labels]
    statistic, cells = 0.0, 0
    for low, high in [(0.02, 0.2), (0.2, 0.5), (0.5, 0.8), (0.8, 0.98)]:
        inside = (probabilities >= low) & (probabilities < high)
        variance = np.where(inside, probabilities * (1 - probabilities), 0).sum(axis=0)
        excess = np.where(inside, drawn - probabilities, 0).sum(axis=0)
        enough = variance > 30
        statistic += (excess[enough] ** 2 / variance[enough]).sum()
        cells += enough.sum()
    assert cells >= 2 * classes - 1
    # Cells of one band are nearly independent; twice the quantile allows for the rest.
    assert statistic < 2 * chi2.isf(FALSE_ALARM, cells)


@pytest.mark.parametrize(("features", "classes"), [(20, 3), (1, 2), (300, 1000), (10, 1_000_000)])
def test_sums_before_the_softmax_are_exact(features, classes):
    # If they are, no order of summation and no number of threads can change a label.
    source = Synthetic(100, features, classes, data_seed=5)
    z = source.read_training(np.arange(8)).features.astype(float)[:, source._informative_features]
    logits = z @ source._weights.T + source._intercept
    for row, class_ in [(0, 0), (2, classes - 1), (5, classes // 2), (7, 1)]:
        products = [float(w) * float(x) for w, x in zip(source._weights[class_], z[row], strict=True)]
        assert logits[row, class_] == math.fsum([*products, source._intercept[class_]])
        forwards = backwards = 0.0
        for product, reverse in zip(products, products[::-1], strict=True):
            forwards, backwards = forwards + product, backwards + reverse
        assert forwards == backwards == math.fsum(products)


@pytest.mark.parametrize(
    ("rows", "needed"),
    [
        # Scattered: nothing of the neighbours, and a row of odd length may share a word with each of them.
        ([2_000_007, 3, 9_999_999, 2_000_008, 0], 5),
        # Many of one block, which is then generated once.
        ([*range(2_000_000, 2_000_060)] * 3, 64),
    ],
)
def test_no_more_is_generated_than_is_needed(rows, needed, monkeypatch):
    source, seen = Synthetic(10**7, 511, 3, data_seed=0), []
    real = synthetic.SeedStream.integers
    monkeypatch.setattr(synthetic.SeedStream, "integers", lambda *args: seen.append(args[2]) or real(*args))
    source.read_training(np.array(rows))
    assert needed * 512 / 2 <= sum(seen) <= needed * (512 / 2 + 2)


def test_memory_for_wide_data_and_many_classes():
    tracemalloc.start()
    try:
        Synthetic(10**6, 10**6, 1000, data_seed=0).read_training(np.array([999_999, 3]))
        wide = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        Synthetic(10**6, 10, 1000, data_seed=0).read_training(np.arange(0, 10**6, 100))
        many = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert wide < 60e6, "two rows of 4 MB, and scratch"
    assert many < 60e6, "10,000 rows by 1,000 classes are drawn in parts"
