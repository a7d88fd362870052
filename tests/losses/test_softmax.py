"""The kernels of softmax regression against finite differences and plain numpy."""

import math
from fractions import Fraction

import numpy as np
import pytest
from helpers import reference as ref
from helpers.property_tests import given
from helpers.sources import random_samples
from hypothesis import strategies as st

from mu2mpi.core.registry import find
from mu2mpi.federation.estimators import AVERAGE, CORRECTED_MOMENTUM
from mu2mpi.losses.model.linear import BATCH, TILE, sum_losses
from mu2mpi.losses.model.scaling import UNIT_BIAS, Scaling

SOFTMAX = find("losses", "softmax")
sum_softmax = SOFTMAX.kernel(sum_losses)

seeds = st.integers(0, 2**31)
# Numbers of samples, classes and features, some of which need more than one tile.
shapes = st.tuples(
    st.integers(1, 9), st.integers(2, 12), st.integers(1, 70) | st.integers(TILE - 2, 2 * TILE + 2)
)
TYPES = pytest.mark.parametrize(
    ("dtype", "scale"), [(np.uint8, 1 / 255), (np.float32, 1.0), (np.float64, 0.5)]
)


def scaling(features, scale, unit):
    scaling = Scaling(unit)
    return scaling.factors(features, scale), scaling.bias


@TYPES
@given(shapes, st.booleans(), seeds, max_examples=30)
def test_an_increment_has_the_same_bits_in_any_company(dtype, scale, shape, unit, seed):
    n, classes, dimension = shape
    rng = np.random.default_rng(seed)
    samples = random_samples(rng, n, dimension, classes, dtype)
    x, x_previous = rng.standard_normal((2, classes, dimension + 1))
    together = np.zeros(x.shape, np.int64)
    # So fine a grid that it shows nearly every bit of an increment.
    fine = 2.0**-50

    def add(q, first, end):
        fresh = samples.features, samples.labels, *scaling(samples.features, scale, unit), first, end
        CORRECTED_MOMENTUM.kernel(SOFTMAX, 3)(q, x, x_previous, *fresh, 2, 1.0, fine, BATCH)

    add(together, 0, n)
    apart, cut = np.zeros(x.shape, np.int64), int(rng.integers(n + 1))
    add(apart, cut, n)
    for i in range(cut):
        add(apart, i, i + 1)
    np.testing.assert_array_equal(together, apart)


@TYPES
@given(shapes, st.sampled_from([0.01, 1.0, 300.0]), st.booleans(), seeds)
def test_loss_and_accuracy(dtype, scale, shape, size, unit, seed):
    n, classes, dimension = shape
    rng = np.random.default_rng(seed)
    samples = random_samples(rng, n, dimension, classes, dtype)
    x = size * rng.standard_normal((classes, dimension + 1))
    loss, correct = sum_softmax(x, samples.features, samples.labels, *scaling(samples.features, scale, unit))
    scaled = samples.features.astype(float) * scale
    assert loss / n == pytest.approx(ref.mean_loss(x, scaled, samples.labels, unit), rel=1e-12)
    assert correct / n == ref.accuracy(x, scaled, samples.labels, unit)


@TYPES
@given(st.integers(1, 100_000), st.integers(2, 12), st.booleans(), seeds, max_examples=15)
def test_the_scale_of_a_sample_has_the_same_bits_in_any_company(dtype, scale, dimension, n, unit, seed):
    rng = np.random.default_rng(seed)
    features = random_samples(rng, n, dimension, 2, dtype).features
    scaling = Scaling(unit, None if unit else math.sqrt(dimension) / 8)
    together = scaling.factors(features, scale)
    assert dimension < 100 or len(set(together)) > 1, "samples have norms of their own"
    cut = int(rng.integers(n))
    parts = [features[:cut], *(features[i : i + 1] for i in range(cut, n))]
    np.testing.assert_array_equal(np.concatenate([scaling.factors(part, scale) for part in parts]), together)


def rows_of_any_floats(width):
    """Return rows of floats over their whole range: subnormal, huge, of one size or mixed, with any signs."""
    sizes = st.lists(st.floats(allow_nan=False, allow_infinity=False, width=width), min_size=1, max_size=30)
    exponents = st.integers(-1074, 1023) if width == 64 else st.integers(-149, 127)
    alike = st.tuples(st.lists(st.floats(-1, 1), min_size=1, max_size=30), exponents).map(
        lambda row: [math.ldexp(v, row[1]) for v in row[0]]
    )
    return (sizes | alike).map(lambda row: np.array([row], np.float64 if width == 64 else np.float32))


def exact_squared_norm(z):
    return sum(Fraction(v) ** 2 for v in z.tolist())


any_rows = rows_of_any_floats(32) | rows_of_any_floats(64)


@given(any_rows, st.sampled_from([1.0, 1e-100, 1e100]), max_examples=500)
def test_no_sample_of_unit_norm_is_longer_than_1(row, scale):
    """Squares of features near 1e-162 underflow, and those of features near 1e160 overflow."""
    z = np.append(row[0] * Scaling(unit=True).factors(row, scale)[0], UNIT_BIAS)
    squared = exact_squared_norm(z)
    assert squared <= (1 + Fraction(1e-14)) ** 2
    assert squared >= (1 - Fraction(1e-14)) ** 2 or np.all(z[:-1] == 0)
    size = np.abs(row.astype(float)).max()
    assert (1e-135 < size < 1e150) <= bool(np.any(z[:-1] != 0))


def test_constants_of_the_paper():
    G, L = SOFTMAX.constants(Scaling().largest_square(784), 0.05, 10)
    assert pytest.approx(39.6, abs=0.05) == G
    assert L == 392.5
    assert CORRECTED_MOMENTUM.bound(G, L, 0.1, AVERAGE) == pytest.approx(118.1, abs=0.05)
