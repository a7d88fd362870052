"""Pairs of normals against exact ones."""

import math

import mpmath
import numba
import numpy as np
import pytest
from helpers.property_tests import given
from hypothesis import strategies as st

from mu2mpi.privacy.noise.box_muller import (
    MIN_UNIFORM_BITS,
    exponent_and_fraction,
    normal_pair,
    split_float,
    squared_radius,
)
from mu2mpi.privacy.noise.grid import MAX_NORMAL_DRAW
from mu2mpi.privacy.noise.noise_stream import MAX_UNIFORM_EXTENSIONS
from mu2mpi.privacy.noise.sampler_error import NORMAL_DRAW_RELATIVE_ERROR


@numba.njit
def pair_of(radius_word, angle_word):
    e, v = exponent_and_fraction(radius_word)
    return normal_pair(squared_radius(e, v), angle_word)


@numba.njit
def small_square(value, shift):
    e, v = split_float(value, shift)
    return squared_radius(e, v)


def exact_pair(u, angle_word):
    """The point at -2 log u and at the angle that the whole word stands for, with 60 digits."""
    signed = angle_word - (angle_word >> 63 << 64)
    angle = mpmath.mpf(signed) / 2**64 * mpmath.pi / 2
    radius = mpmath.sqrt(-2 * mpmath.log(u)) * (-1 if angle_word & 2 else 1)
    cosine, sine = radius * mpmath.cos(angle), radius * mpmath.sin(angle)
    return (sine, cosine) if angle_word & 1 else (cosine, sine)


# Words of all magnitudes, close to 2^64 too, and at the step of the mantissa.
near_the_top = st.integers(1, 2**64 - 2**63).map(lambda below: 2**64 - below)
of_any_size = st.integers(MIN_UNIFORM_BITS, 63).flatmap(lambda k: st.integers(2**k, 2 ** (k + 1) - 1))
near_the_step = st.integers(-(2**20), 2**20).map(lambda k: math.isqrt(2**127) + k)
close_to_the_top = st.integers(1, 2**30).map(lambda below: 2**64 - below)
word = of_any_size | near_the_top | near_the_step | close_to_the_top


@given(word, st.integers(0, 2**64 - 1), max_examples=400)
def test_a_pair_is_as_close_to_an_exact_one_as_the_bound_takes_it_to_be(radius_word, angle_word):
    with mpmath.workdps(60):
        # Close to 1 a word stands for the upper end of its interval, and else for its lower.
        last = mpmath.mpf(radius_word + (radius_word >= math.isqrt(2**127))) / 2**64
        radius = mpmath.sqrt(-2 * mpmath.log(last)) if last < 1 else mpmath.mpf(0)
        found = pair_of(np.uint64(radius_word), np.uint64(angle_word))
        for ours, exact in zip(found, exact_pair(last, angle_word), strict=True):
            # Of 16 units, 2 are for the product with the scale and its rounding, which come later.
            assert abs(mpmath.mpf(ours) - exact) <= NORMAL_DRAW_RELATIVE_ERROR * radius * 14 / 16


@pytest.mark.parametrize("value", [2.0**44, 2.0**44 * 1.4142, 2.0**60 + 4096, 2.0**107])
@pytest.mark.parametrize("shift", [64.0, 128.0, 1024.0])
def test_small_words_have_the_radius_of_all_their_words(value, shift):
    with mpmath.workdps(60):
        exact = -2 * mpmath.log(mpmath.mpf(value) / mpmath.mpf(2) ** int(shift))
        assert abs(small_square(value, shift) / exact - 1) < 11.2 * 2.0**-53


def test_no_draw_is_larger_than_the_largest():
    assert math.sqrt(small_square(1.0, 64.0 * (MAX_UNIFORM_EXTENSIONS + 1))) < MAX_NORMAL_DRAW
    assert math.sqrt(pair_of(np.uint64(0), np.uint64(0))[0] ** 2) < MAX_NORMAL_DRAW
    assert pair_of(np.uint64(2**64 - 1), np.uint64(0)) == (0.0, 0.0)
