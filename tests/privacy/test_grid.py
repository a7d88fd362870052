"""The grid: no sum can overflow, rounding is to the nearest, clipped increments keep to their norm."""

import math

import numba
import numpy as np
import pytest
from hypothesis import strategies as st
from relaxed import given

from mu2mpi.compiled import round_to_integer
from mu2mpi.errors import InputError
from mu2mpi.privacy.grid import choose_resolution, clipping_bound
from mu2mpi.privacy.noise import MAX_NORMAL

norms = st.floats(1e-3, 1e6)
sizes = st.integers(1, 10**6)


@numba.vectorize
def rounded(value):
    return round_to_integer(value)


@given(st.floats(-(2.0**50), 2.0**50))
def test_rounding_is_to_the_nearest_even(value):
    assert rounded(value) == round(value)


def test_rounding_of_ties():
    np.testing.assert_array_equal(rounded(np.array([0.5, 1.5, 2.5, -0.5, -1.5])), [0, 2, 2, 0, -2])


@given(norms, st.floats(1e-2, 1e3), sizes, sizes, sizes)
def test_no_sum_of_messages_can_leave_int64(clip, rho, d, machines, rounds):
    sigma = 2 * clip * math.sqrt(rounds) / rho
    try:
        g = choose_resolution(clip, sigma, d, machines, rounds)
    except InputError:
        # Refused only where the whole range of int64 could not hold twelve bits below the noise.
        assert machines * (rounds * clip + MAX_NORMAL * sigma) > sigma * 2.0**48
        return
    assert math.log2(g).is_integer()
    largest = math.ceil(clip / g + 0.5) * rounds + math.ceil(MAX_NORMAL * sigma / g + 0.5)
    assert machines * largest < 2**63
    assert max(clip, MAX_NORMAL * sigma) / g < 2**51  # what round_to_integer can take


@given(
    st.floats(0.1, 1e3),
    st.floats(0.1, 100),
    st.integers(1, 10**5),
    st.integers(1, 100),
    st.integers(1, 10**5),
)
def test_resolution_is_far_below_the_noise(clip, rho, d, machines, rounds):
    sigma = 2 * clip * math.sqrt(rounds) / rho
    assert sigma * 2.0**-45 <= choose_resolution(clip, sigma, d, machines, rounds) <= sigma * 2.0**-29


def test_paper_scale_uses_thirty_bits():
    sigma = 2 * 118.1 * math.sqrt(600) / 4
    assert choose_resolution(118.1, sigma, 7850, 100, 600) == 2.0 ** (math.floor(math.log2(sigma)) - 30)


def test_too_many_machine_rounds_are_refused():
    with pytest.raises(InputError, match="64-bit"):
        choose_resolution(1.0, 1e-3, 10, 2**32 - 1, 2**32 - 1)


@given(norms, st.floats(1e-2, 1e3), st.integers(1, 2000), sizes, st.integers(0, 2**32 - 1))
def test_a_clipped_increment_keeps_its_norm_when_rounded(clip, rho, d, rounds, seed):
    sigma = 2 * clip * math.sqrt(rounds) / rho
    g = choose_resolution(clip, sigma, d, 10, rounds)
    bound = clipping_bound(clip, g, d)
    assert clip * 0.999 <= bound < clip
    direction = np.random.default_rng(seed).standard_normal(d)
    s = direction * (bound / np.linalg.norm(direction))
    units = [int(v) for v in np.rint(s / g)]
    assert sum(u * u for u in units) * g * g <= clip * clip * (1 + 1e-15)


def test_a_grid_coarser_than_the_increments_is_refused():
    with pytest.raises(InputError, match="too small for the grid"):
        clipping_bound(1.0, 0.5, 100)
