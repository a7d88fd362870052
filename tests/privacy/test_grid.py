"""The grid: no sum can overflow, rounding is to the nearest, clipped increments keep to their norm."""

import math

import numpy as np
import pytest
from helpers.property_tests import given
from helpers.simulations import make_messages
from hypothesis import example, strategies as st

from mu2mpi.core.errors import InputError
from mu2mpi.privacy.noise.grid import MAX_NORMAL_DRAW, choose_grid_spacing, reduce_clip_norm

norms = st.floats(1e-3, 1e6)
sizes = st.integers(1, 10**6)


@given(norms, st.floats(1e-2, 1e12), sizes, sizes, sizes)
@example(1.0, 1e9, 1, 1, 5)
@example(118.0, 1e12, 7850, 1, 1)
def test_nothing_can_leave_its_integers(clip, rho, d, machines, rounds):
    sigma = 2 * clip * math.sqrt(rounds) / rho
    try:
        g = choose_grid_spacing(make_messages(clip, clip, d, machines, rounds), sigma)
    except InputError:
        # Refused only where twelve bits below the noise are more than the integers hold.
        assert (
            machines * (rounds * clip + MAX_NORMAL_DRAW * sigma) > sigma * 2.0**48
            or clip > sigma * 2.0**37  # of a single increment
        )
        return
    assert math.log2(g).is_integer()
    largest = math.ceil(clip / g + 0.5) * rounds + math.ceil(MAX_NORMAL_DRAW * sigma / g + 0.5)
    assert machines * largest < 2**63
    assert max(clip, MAX_NORMAL_DRAW * sigma) / g < 2**51  # what round_to_integer can take


@given(
    st.floats(0.1, 1e3),
    st.floats(0.1, 100),
    st.integers(1, 10**5),
    st.integers(1, 100),
    st.integers(1, 10**5),
)
def test_the_grid_is_no_finer_than_rounding_and_noise_ask_for(clip, rho, d, machines, rounds):
    sigma = 2 * clip * math.sqrt(rounds) / rho
    g = choose_grid_spacing(make_messages(clip, clip, d, machines, rounds), sigma)
    cost = g * math.sqrt(d) / 2 / clip
    assert cost <= 0.005
    assert g <= sigma * 2.0**-12
    assert cost > 0.0025 or g > sigma * 2.0**-13


@given(norms, st.floats(1e-2, 1e3), st.integers(1, 2000), sizes, st.integers(0, 2**32 - 1))
def test_a_clipped_increment_keeps_its_norm_when_rounded(clip, rho, d, rounds, seed):
    sigma = 2 * clip * math.sqrt(rounds) / rho
    g = choose_grid_spacing(make_messages(clip, clip, d, 10, rounds), sigma)
    bound = reduce_clip_norm(clip, g, d)
    assert clip * 0.9949 <= bound < clip
    direction = np.random.default_rng(seed).standard_normal(d)
    s = direction * (bound / np.linalg.norm(direction))
    assert exact_norm_squared(np.rint(s / g)) * g * g <= clip * clip * (1 + 1e-15)


def exact_norm_squared(units):
    return sum(int(u) ** 2 for u in units)


@pytest.mark.parametrize("d", [1, 10, 1000])
@pytest.mark.parametrize("n", [3, 1000])
def test_rounding_that_lengthens_an_increment_the_most(d, n):
    """Every coordinate just above half a unit, so that all of them are rounded away from 0."""
    g = 0.25
    clip = g * math.sqrt(d) * (n + 1)  # the norm after rounding, exactly
    bound = reduce_clip_norm(clip, g, d)
    s = np.full(d, (n + 0.5 + 1e-9) * g)
    s *= min(1, bound / np.linalg.norm(s))
    assert exact_norm_squared(np.rint(s / g)) * g * g <= clip * clip
    # The test would notice a smaller slack: this increment has less than the norm allowed before rounding.
    clip = g * math.sqrt(d) * (n + 0.75)
    s = np.full(d, (n + 0.5 + 1e-9) * g)
    assert np.linalg.norm(s) < clip
    assert exact_norm_squared(np.rint(s / g)) * g * g > clip * clip
    s *= min(1, reduce_clip_norm(clip, g, d) / np.linalg.norm(s))
    assert exact_norm_squared(np.rint(s / g)) * g * g <= clip * clip
