"""What a round adds to a message: the same bits in any company, and those of plain NumPy."""

import math
from fractions import Fraction

import numpy as np
from helpers.plain_losses import LOSSES, PLAIN, SCALINGS, TYPES, plain_samples, stored_samples
from helpers.property_tests import given
from helpers.sources import random_samples
from hypothesis import strategies as st

from mu2mpi.core.kernels import inline, specialise_kernel
from mu2mpi.core.registry import lookup
from mu2mpi.federation.estimators import CORRECTED_MOMENTUM, GRADIENT_ESTIMATOR
from mu2mpi.federation.increments import add_increments
from mu2mpi.losses.model.linear import FEATURES_PER_TILE, SAMPLES_PER_BLOCK
from mu2mpi.losses.model.scaling import Scaling

SOFTMAX = lookup("losses", "softmax")
seeds = st.integers(0, 2**31)


# Numbers of samples, classes and features, some of which need more than one tile.
shapes = st.tuples(
    st.integers(1, 9),
    st.integers(2, 12),
    st.integers(1, 70) | st.integers(FEATURES_PER_TILE - 2, 2 * FEATURES_PER_TILE + 2),
)


@TYPES
@given(shapes, st.booleans(), seeds, max_examples=30)
def test_an_increment_has_the_same_bits_in_any_company(dtype, scale, shape, unit, seed):
    n, classes, dimension = shape
    rng = np.random.default_rng(seed)
    samples = random_samples(rng, n, dimension, classes, dtype)
    x, x_previous = rng.standard_normal((2, classes, dimension + 1))
    together = np.zeros(x.shape, np.int64)
    scaling = Scaling(unit)
    # So fine a grid that it shows nearly every bit of an increment.
    fine = 2.0**-50

    def add(q, first, end):
        fresh = (
            samples.features, samples.labels, scaling.scale_factors(samples.features, scale),
            scaling.bias_feature, first,
            end,
        )  # fmt: skip
        CORRECTED_MOMENTUM.compile_kernel(SOFTMAX, 3)(
            q, x, x_previous, *fresh, 2, 1.0, fine, SAMPLES_PER_BLOCK
        )

    add(together, 0, n)
    apart, cut = np.zeros(x.shape, np.int64), int(rng.integers(n + 1))
    add(apart, cut, n)
    for i in range(cut):
        add(apart, i, i + 1)
    np.testing.assert_array_equal(together, apart)


@LOSSES
@TYPES
@given(
    shapes, st.sampled_from(SCALINGS), st.integers(1, 1000), st.sampled_from([1, SAMPLES_PER_BLOCK]),
    st.sampled_from([0.1, 0.9, 1e6]), st.booleans(), seeds, max_examples=12,
)  # fmt: skip
def test_what_a_round_adds_is_what_plain_numpy_adds(
    loss_function, dtype, scale, shape, scaling, t, batch, clip_norm, plainly, seed
):
    """STORM's increments, or plain gradients, each clipped: to the grid's spacing."""
    rng, classes, features, labels = stored_samples(loss_function, shape, dtype, seed)
    z = plain_samples(features.astype(float) * scale, scaling)
    x, x_previous = rng.standard_normal((2, loss_function.model_rows(classes), z.shape[1])) / math.sqrt(
        z.shape[1]
    )
    x_previous = x + (x_previous - x) / t
    expected, long = np.zeros(x.shape), 0
    plain = PLAIN[loss_function.name]
    for sample, label in zip(z, labels, strict=True):
        c = plain.residual(x @ sample, label)
        if not plainly:
            c = t * c - (t - 1) * plain.residual(x_previous @ sample, label)
        s = np.outer(c, sample)
        factor = min(1.0, clip_norm / max(np.linalg.norm(s), 1e-300))
        expected += factor * s
        long += factor < 1
    grid_spacing, q = 2.0**-36, np.zeros(x.shape, np.int64)
    fresh = features, labels, scaling.scale_factors(features, scale), scaling.bias_feature, 0, len(labels)
    add = (GRADIENT_ESTIMATOR if plainly else CORRECTED_MOMENTUM).compile_kernel(loss_function, len(x))
    _, clipped = add(q, x, x_previous, *fresh, t, clip_norm, grid_spacing, batch)
    assert clipped == long
    tolerance = len(labels) * (grid_spacing + 1e-12 * t)
    np.testing.assert_allclose(q * grid_spacing, expected, rtol=0, atol=tolerance)


@inline
def keep_margins(margins, label):
    """Residual of a loss that is half the squared margin: increments are (x z) z^T."""


def mixed_floats(rng, shape, share):
    """Return normals, and small numerators over powers of two, whose products are often half-integers."""
    short = np.ldexp(rng.integers(-9, 10, shape).astype(float), rng.integers(-4, 4, shape))
    return np.where(rng.random(shape) < share, short, rng.standard_normal(shape))


@given(
    st.integers(1, 2 * SAMPLES_PER_BLOCK + 1), st.integers(2, 5), st.integers(1, 9), st.integers(-3, 34),
    st.sampled_from([0, 1, 30]), st.sampled_from([0.0, 0.03, 1.0]), st.sampled_from([0.5, 1.0]),
    st.sampled_from([1, SAMPLES_PER_BLOCK]), seeds, max_examples=200,
)  # fmt: skip
def test_messages_are_integer_sums_of_products_that_are_rounded_half_to_even(
    n, classes, width, exponent, slack, share, feature_share, block_size, seed
):
    """The sums do not depend on which samples share a block, also where products are half-integers."""
    rng = np.random.default_rng(seed)
    c = mixed_floats(rng, (n, classes), share) * 2.0**exponent
    # Sample i alone has the feature n_i, which makes its margins those that were chosen.
    z = np.hstack([np.eye(n), mixed_floats(rng, (n, width), feature_share), np.ones((n, 1))])
    x = np.hstack([c.T, np.zeros((classes, width + 1))])
    expected = np.zeros(x.shape, np.int64)
    for i, k, j in np.ndindex(n, *x.shape):
        expected[k, j] += round(Fraction(c[i, k]) * Fraction(z[i, j]))
    max_norm = float(np.max(np.linalg.norm(c, axis=1) * np.linalg.norm(z, axis=1)) * (1 + 1e-12))
    clip_norm = max_norm * 2.0**slack or 1.0
    add = specialise_kernel(add_increments, "kept-margins", residual=keep_margins, HAS_MOMENTUM=False)
    message, labels = np.zeros(x.shape, np.int64), np.zeros(n, np.int32)
    fresh = z[:, :-1].copy(), labels, np.ones(n), 1.0, 0, n
    _, clipped = add(message, x, x, *fresh, 1, clip_norm, 1.0, block_size)
    assert clipped == 0
    np.testing.assert_array_equal(message, expected)
