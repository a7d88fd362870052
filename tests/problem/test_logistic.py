"""The kernels of softmax regression against finite differences and plain numpy."""

import numpy as np
import pytest
import reference as ref
from arrays import random_samples
from hypothesis import strategies as st
from relaxed import given

from mu2mpi.algorithm.machine import add_increments
from mu2mpi.problem.logistic import BATCH, TILE, gradient_bound, smoothness, sum_losses

seeds = st.integers(0, 2**31)
batches = st.sampled_from([1, BATCH])
# Numbers of samples, classes and features, some of which need more than one tile.
shapes = st.tuples(
    st.integers(1, 9), st.integers(2, 12), st.integers(1, 70) | st.integers(TILE - 2, 2 * TILE + 2)
)
RESOLUTION = 2.0**-40
TYPES = pytest.mark.parametrize(
    ("dtype", "scale"), [(np.uint8, 1 / 255), (np.float32, 1.0), (np.float64, 0.5)]
)


def increments(x, x_previous, features, labels, scale, t, batch):
    """Return the sum of the increments of some samples as the kernel makes it, never clipped."""
    q = np.zeros(x.shape, np.int64)
    add_increments(q, x, x_previous, features, labels, scale, t, np.inf, RESOLUTION, batch)
    return q * RESOLUTION


def with_bias(features, scale):
    return ref.add_bias(features.astype(float) * scale)


@TYPES
@given(st.integers(2, 12), st.integers(1, 70), batches, seeds, max_examples=30)
def test_gradient_against_finite_differences(dtype, scale, classes, dimension, batch, seed):
    rng = np.random.default_rng(seed)
    sample = random_samples(rng, 1, dimension, classes, dtype)
    x = rng.standard_normal((classes, dimension + 1))
    found = increments(x, x, sample.features, sample.labels, scale, 1, batch)
    z = with_bias(sample.features, scale)[0]
    direction = rng.standard_normal(x.shape)
    step = 1e-5
    ahead = ref.softmax_loss(x + step * direction, z, sample.labels[0])
    behind = ref.softmax_loss(x - step * direction, z, sample.labels[0])
    assert np.sum(found * direction) == pytest.approx((ahead - behind) / (2 * step), rel=1e-6, abs=1e-6)


@TYPES
@given(shapes, st.integers(1, 10_000), batches, seeds, max_examples=30)
def test_increments_against_dense_gradients(dtype, scale, shape, t, batch, seed):
    n, classes, dimension = shape
    rng = np.random.default_rng(seed)
    samples = random_samples(rng, n, dimension, classes, dtype)
    x = rng.standard_normal((classes, dimension + 1))
    x_previous = x + rng.standard_normal(x.shape) / t
    expected = np.zeros(x.shape)
    for z, label in zip(with_bias(samples.features, scale), samples.labels, strict=True):
        g, previous = ref.gradient(x, z, label), ref.gradient(x_previous, z, label)
        expected += g + (t - 1) * (g - previous)
    found = increments(x, x_previous, samples.features, samples.labels, scale, t, batch)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10 * n)


@TYPES
@given(shapes, seeds, max_examples=30)
def test_an_increment_has_the_same_bits_in_any_company(dtype, scale, shape, seed):
    n, classes, dimension = shape
    rng = np.random.default_rng(seed)
    samples = random_samples(rng, n, dimension, classes, dtype)
    x, x_previous = rng.standard_normal((2, classes, dimension + 1))
    together = np.zeros(x.shape, np.int64)
    # So fine a grid that it shows nearly every bit of an increment.
    fine = 2.0**-50

    def add(q, part):
        features, labels = samples.features[part], samples.labels[part]
        add_increments(q, x, x_previous, features, labels, scale, 2, 1.0, fine, BATCH)

    add(together, slice(0, n))
    apart, cut = np.zeros(x.shape, np.int64), int(rng.integers(n + 1))
    add(apart, slice(cut, n))
    for i in range(cut):
        add(apart, slice(i, i + 1))
    np.testing.assert_array_equal(together, apart)


@TYPES
@given(shapes, st.sampled_from([0.01, 1.0, 300.0]), seeds)
def test_loss_and_accuracy(dtype, scale, shape, size, seed):
    n, classes, dimension = shape
    rng = np.random.default_rng(seed)
    samples = random_samples(rng, n, dimension, classes, dtype)
    x = size * rng.standard_normal((classes, dimension + 1))
    loss, correct = sum_losses(x, samples.features, samples.labels, scale)
    scaled = samples.features.astype(float) * scale
    assert loss / n == pytest.approx(ref.mean_loss(x, scaled, samples.labels), rel=1e-12)
    assert correct / n == ref.accuracy(x, scaled, samples.labels)


def test_ties_go_to_the_first_class():
    features, labels = np.zeros((3, 1)), np.array([0, 1, 2], np.int32)
    loss, correct = sum_losses(np.zeros((3, 2)), features, labels, 1.0)
    assert correct == 1
    assert loss == pytest.approx(3 * np.log(3))


def test_constants_of_the_paper():
    assert gradient_bound(785) == pytest.approx(39.6, abs=0.05)
    assert smoothness(785) == 392.5
    assert gradient_bound(785) + 2 * smoothness(785) * 0.1 == pytest.approx(118.1, abs=0.05)
