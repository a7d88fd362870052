"""Sums of losses of a linear model over stored samples, against plain NumPy."""

import math

import numpy as np
import pytest
from helpers.plain_losses import LOSSES, PLAIN, SCALINGS, TYPES, plain_samples, stored_samples
from helpers.property_tests import given
from hypothesis import strategies as st

from mu2mpi.losses.model.linear import FEATURES_PER_TILE, all_margins, sum_losses

seeds = st.integers(0, 2**31)


# Numbers of samples, classes and features, some of which need more than one tile.
shapes = st.tuples(
    st.integers(1, 9),
    st.integers(2, 12),
    st.integers(1, 70) | st.integers(FEATURES_PER_TILE - 2, 2 * FEATURES_PER_TILE + 2),
)


@LOSSES
@TYPES
@given(shapes, st.sampled_from(SCALINGS), seeds, max_examples=12)
def test_sums_of_losses(loss_function, dtype, scale, shape, scaling, seed):
    rng, classes, features, labels = stored_samples(loss_function, shape, dtype, seed)
    z = plain_samples(features.astype(float) * scale, scaling)
    x = rng.standard_normal((loss_function.model_rows(classes), z.shape[1])) / math.sqrt(z.shape[1])
    arguments = features, labels, scaling.scale_factors(features, scale), scaling.bias_feature
    total, score = loss_function.compile_kernel(sum_losses)(x, *arguments)
    plain = PLAIN[loss_function.name]
    expected = [plain.loss(x @ sample, label) for sample, label in zip(z, labels, strict=True)]
    assert total == pytest.approx(sum(expected), rel=1e-11, abs=1e-12)
    if loss_function.label_kind == "classes":
        assert score == np.sum(loss_function.predict_classes(z @ x.T) == labels)
    else:
        assert score == pytest.approx(
            np.sum((plain.prediction(z @ x[0]) - labels) ** 2), rel=1e-11, abs=1e-13
        )


@given(shapes, seeds, max_examples=40)
def test_margins_are_those_of_plain_numpy_and_have_the_same_bits_in_any_company(shape, seed):
    n, classes, width = shape
    rng = np.random.default_rng(seed)
    x, z = rng.standard_normal((classes, width)), rng.standard_normal((n, width))
    margins = all_margins(x, z)
    np.testing.assert_allclose(margins, z @ x.T, rtol=0, atol=1e-13 * width)
    first = rng.integers(n)
    np.testing.assert_array_equal(all_margins(x, z[first:]), margins[first:])
