"""The reference against the truth: finite differences, and rounds by hand."""

import math

import numpy as np
import pytest
from hypothesis import strategies as st

from helpers import reference as ref
from helpers.property_tests import given


@given(st.tuples(st.integers(2, 6), st.integers(2, 9)), st.integers(0, 2**32 - 1), st.floats(0.01, 3))
def test_gradient_is_the_derivative_of_the_loss(shape, seed, scale):
    rng = np.random.default_rng(seed)
    x = scale * rng.standard_normal(shape)
    z, label = np.append(rng.uniform(-1, 1, shape[1] - 1), 1.0), int(rng.integers(shape[0]))
    step = 1e-6
    numeric = np.empty(shape)
    for index in np.ndindex(shape):
        e = np.zeros(shape)
        e[index] = step
        numeric[index] = (ref.softmax_loss(x + e, z, label) - ref.softmax_loss(x - e, z, label)) / (2 * step)
    np.testing.assert_allclose(ref.gradient(x, z, label), numeric, rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    ("run", "gain", "drawn"), [(ref.untrusted_server, math.sqrt(2), 2), (ref.trusted_server, 2, 1)]
)
def test_first_rounds_by_hand(run, gain, drawn):
    """Two rounds with two machines that are alike: w_2 = -eta (g + Y), x_2 = x_1 / 3 + 2 w_2 / 3."""
    features, labels = np.array([[[0.5]] * 2, [[-1.0]] * 2]), np.array([[0, 0], [1, 1]])
    Y = np.array([[0.1, -0.2], [0.3, 0.4]])
    D, rho, T, F = 10.0, 3.0, 2, 2
    S = 2.0 + 2 * 1.0 * D
    sigma, eta = 2 * S * math.sqrt(T) / rho, min(rho * D * gain / (2 * S * T * 2.0), 1 / (4 * 1.0 * T))
    g = np.outer([-0.5, 0.5], [0.5, 1.0])
    w_2 = -eta * (g + sigma * drawn / 2 * Y)
    assert np.linalg.norm(w_2) < D / 2
    x_T, w_T = run(features, labels, np.zeros((2, F)), D, rho, lambda *_: Y)
    np.testing.assert_allclose(w_T, w_2, rtol=1e-14)
    np.testing.assert_allclose(x_T, 2 / 3 * w_2, rtol=1e-14)
