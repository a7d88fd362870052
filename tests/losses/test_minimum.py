"""Minimum over a ball against closed forms, and its duality gap."""

import numpy as np
from helpers.property_tests import given
from hypothesis import strategies as st

from mu2mpi.losses.model.ball import DUALITY_GAP_TOLERANCE_NATS, minimise_over_ball

seeds = st.integers(0, 2**31)


def quadratic(rng, dimension, condition):
    """Return f(x) = <x - c, A (x - c)> / 2 with its gradient, A, c, and the largest eigenvalue of A."""
    basis, _ = np.linalg.qr(rng.standard_normal((dimension, dimension)))
    eigenvalues = np.geomspace(1 / condition, 1, dimension)
    A, c = (basis * eigenvalues) @ basis.T, rng.standard_normal(dimension)
    return (lambda x: (float((x - c) @ A @ (x - c)) / 2, A @ (x - c))), A, c


def minimum_by_bisection(A, c, radius):
    """Return the minimum over the ball: (A + m) x = A c with m = 0, or such that ||x|| = radius."""

    def solution(m):
        return np.linalg.solve(A + m * np.eye(len(c)), A @ c)

    low, high = 0.0, 1e9
    if np.linalg.norm(c) > radius:
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if np.linalg.norm(solution(middle)) > radius else (low, middle)
    x = solution(low)
    return float((x - c) @ A @ (x - c)) / 2


@given(st.integers(1, 20), st.floats(0.01, 10), st.floats(1, 1000), seeds, max_examples=40)
def test_quadratic_with_its_minimum_inside_or_outside(dimension, radius, condition, seed):
    function, A, c = quadratic(np.random.default_rng(seed), dimension, condition)
    found = minimise_over_ball(function, np.zeros(dimension), radius, 1.0, 20_000, DUALITY_GAP_TOLERANCE_NATS)
    truth = minimum_by_bisection(A, c, radius)
    assert found.duality_gap <= DUALITY_GAP_TOLERANCE_NATS
    assert found.value - found.duality_gap - 1e-9 <= truth <= found.value + 1e-9


@given(st.integers(1, 30), st.integers(1, 12), seeds, max_examples=60)
def test_the_certificate_holds_when_the_passes_run_out(dimension, passes, seed):
    calls = []
    function, A, c = quadratic(np.random.default_rng(seed), dimension, 1e4)

    def counted(x):
        assert np.linalg.norm(x) <= 3.0 * (1 + 1e-12)
        calls.append(x)
        return function(x)

    found = minimise_over_ball(counted, np.zeros(dimension), 3.0, 1.0, passes, DUALITY_GAP_TOLERANCE_NATS)
    truth = minimum_by_bisection(A, c, 3.0)
    assert found.passes == len(calls) <= passes
    assert found.value - found.duality_gap - 1e-9 <= truth <= found.value + 1e-9
