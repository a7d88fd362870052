"""Projection onto the ball."""

import numba
import numpy as np
import pytest

from mu2mpi.losses.model.ball import projection_factor, squared_norm


@numba.njit
def project(x, radius):
    return x * projection_factor(squared_norm(x), radius)


@pytest.mark.parametrize("radius", [1e-100, 0.05, 30.0, 1e99])
@pytest.mark.parametrize("size", [0.0, 1e-30, 0.999, 1.001, 1e9])
def test_projection_onto_the_ball(radius, size):
    x = np.array([3.0, -4.0, 12.0]) / 13 * (size * radius)
    projected = project(x, radius)
    assert np.linalg.norm(projected) <= radius * (1 + 1e-15)
    np.testing.assert_allclose(projected, x if size <= 1 else x / size, rtol=1e-14)
