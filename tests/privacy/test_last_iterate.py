"""Batches that grow, and the least noise with which the last iterate keeps to rho."""

import math

import numpy as np
import pytest
from helpers.property_tests import given
from hypothesis import strategies as st

from mu2mpi.methods.snowball_sgd import LOOSENESS
from mu2mpi.privacy.accounting.guarantee import Budget, Gaussian
from mu2mpi.privacy.mechanisms.last_iterate import (
    LastIterate,
    growing_batches,
    growth_of,
    halving_steps,
    hidden_rho,
)
from mu2mpi.privacy.release import Release


def calibrated(rounds, machines, d, rho, G=3.0):
    """Return the mechanism for gradients of norm G, which rounding leaves unclipped."""
    batches = growing_batches(rounds - 1, growth_of(machines, d, rho))
    messages = Release(
        rounds=rounds,
        machines=machines,
        parameters=d,
        clip_norm=G * LOOSENESS,
        gradient_norm=G,
        touched=1,
        summed=int(batches.max()),
        samples=int(batches.sum()),
        drawn=float(batches[0]),
        is_hidden=True,
    )
    return LastIterate.calibrate(Budget(rho, math.nan, 1e-5), messages)


def test_rounds_before_the_last_show_nothing():
    mechanism = calibrated(6, 2, 4, 0.5)
    assert [mechanism.guarantee(t) for t in range(6)] == [Gaussian(0.0)] * 6
    assert mechanism.guarantee(6) == mechanism.guarantee()
    assert [mechanism.rho_spent(t) for t in range(7)] == [0.0] * 6 + [0.5]
    # Each step has noise in proportion to its batch, and the last round takes none.
    noise = [mechanism.sigma * int(size) for size in mechanism.batches]
    assert [mechanism.sigma_of(t) for t in range(1, 7)] == [*noise, 0.0]


@given(st.integers(1, 300), st.integers(1, 50), st.integers(2, 5000), st.floats(0.05, 100), max_examples=50)
def test_batches_and_noise_keep_to_rho(steps, machines, d, rho):
    """Against the inequality for each step by itself; rounding costs next to nothing."""
    growth = growth_of(machines, d, rho)
    batches = growing_batches(steps, growth)
    mechanism = calibrated(steps + 1, machines, d, rho)
    C, noise, resolution = mechanism.clip_norm, mechanism.sigma / machines, mechanism.resolution
    np.testing.assert_array_equal(mechanism.batches, batches)
    assert mechanism.growth == growth
    assert mechanism.guarantee().rho == pytest.approx(rho, rel=1e-12)
    assert noise <= C / math.sqrt(d) * (1 + 4e-4)
    assert hidden_rho(batches, machines, C, noise, resolution, d).max() == pytest.approx(rho, rel=1e-12)
    eta = halving_steps(steps)
    for t in range(steps):
        left = math.sqrt(np.sum(eta[t:] ** 2))
        assert 2 * C * eta[t] / (machines * batches[t]) <= rho * left * noise
        if batches[t] > 1:
            most = rho * left * C / math.sqrt(d)
            assert 2 * C * eta[t] / (machines * (batches[t] - 1)) > most * (1 - 1e-12)
