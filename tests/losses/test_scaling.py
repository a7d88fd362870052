"""Scale factors of samples: independent of other samples, and no sample exceeds its norm bound."""

import math
from fractions import Fraction

import numpy as np
from helpers.plain_losses import TYPES, plain_samples
from helpers.property_tests import given
from helpers.sources import random_samples
from hypothesis import strategies as st

from mu2mpi.losses.model.scaling import UNIT_NORM_BIAS_FEATURE, Scaling

seeds = st.integers(0, 2**31)


@TYPES
@given(st.integers(1, 100_000), st.integers(2, 12), st.booleans(), seeds, max_examples=15)
def test_scale_factors_do_not_depend_on_other_samples(dtype, scale, dimension, n, unit, seed):
    rng = np.random.default_rng(seed)
    features = random_samples(rng, n, dimension, 2, dtype).features
    scaling = Scaling(unit, None if unit else math.sqrt(dimension) / 8)
    together = scaling.scale_factors(features, scale)
    assert dimension < 100 or len(set(together)) > 1, "samples have norms of their own"
    cut = int(rng.integers(n))
    parts = [features[:cut], *(features[i : i + 1] for i in range(cut, n))]
    np.testing.assert_array_equal(
        np.concatenate([scaling.scale_factors(part, scale) for part in parts]), together
    )


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
def test_unit_norm_samples_have_norm_1(row, scale):
    """Squares of features near 1e-162 underflow, and those of features near 1e160 overflow."""
    z = np.append(row[0] * Scaling(unit_norm=True).scale_factors(row, scale)[0], UNIT_NORM_BIAS_FEATURE)
    squared = exact_squared_norm(z)
    assert squared <= (1 + Fraction(1e-14)) ** 2
    assert squared >= (1 - Fraction(1e-14)) ** 2 or np.all(z[:-1] == 0)
    size = np.abs(row.astype(float)).max()
    assert (1e-135 < size < 1e150) <= bool(np.any(z[:-1] != 0))


seeds = st.integers(0, 2**31)


@TYPES
@given(st.integers(1, 40), st.sampled_from([1e-3, 0.4, 2.0, 50.0]), seeds, max_examples=30)
def test_samples_beyond_the_norm_bound_are_scaled_and_others_kept(dtype, scale, dimension, bound, seed):
    features = random_samples(np.random.default_rng(seed), 8, dimension, 2, dtype).features
    scaling = Scaling(max_norm=bound)
    z = scaling.scaled_samples(features, scale)
    plain = features.astype(float) * scale
    assert np.all(np.sum(z**2, axis=1) <= scaling.max_squared_norm(dimension) * (1 + 1e-14))
    short = np.linalg.norm(plain, axis=1) < bound
    np.testing.assert_array_equal(z[short, :-1], plain[short])
    np.testing.assert_allclose(z, plain_samples(plain, scaling), rtol=1e-13)
