"""What a round adds to a message: the same bits in any company, and those of plain NumPy."""

import math

import numpy as np
from helpers.plain_losses import LOSSES, PLAIN, SCALINGS, TYPES, plain_samples, stored_samples
from helpers.property_tests import given
from helpers.sources import random_samples
from hypothesis import strategies as st

from mu2mpi.core.registry import lookup
from mu2mpi.federation.estimators import CORRECTED_MOMENTUM, GRADIENT_ESTIMATOR
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
