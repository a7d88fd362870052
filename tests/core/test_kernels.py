"""Functions that kernels share, and the compilation of kernels."""

import math

import numba
import numpy as np
import pytest
from helpers.property_tests import given
from hypothesis import strategies as st

from mu2mpi.core.kernels import (
    aligned_empty,
    aligned_zeros,
    bits_to_float,
    find_compilation_error,
    float_to_bits,
    round_to_integer,
    specialise_kernel,
)


@numba.vectorize
def rounded(value):
    return round_to_integer(value)


@given(st.floats(-(2.0**50), 2.0**50))
def test_rounding_is_to_nearest_ties_to_even(value):
    assert rounded(value) == round(value)


@numba.njit
def round_trip(value):
    return float_to_bits(value), bits_to_float(float_to_bits(value)), aligned_empty(9).ctypes.data


@pytest.mark.parametrize("value", [0.0, -0.0, 1.5, -1e-310, math.inf])
def test_bits_equal_those_of_numpy_and_aligned_empty_is_aligned(value):
    bits, again, address = round_trip(value)
    assert (bits, repr(again), address % 64) == (np.float64(value).view(np.int64), repr(value), 0)


def test_aligned_zeros_are_aligned():
    for shape in ((1,), (3, 5), (2, 3, 4)):
        zeros = aligned_zeros(shape, np.int64)
        assert (zeros.shape, zeros.dtype, zeros.any(), zeros.ctypes.data % 64) == (shape, np.int64, False, 0)


def factor(value):
    return value


def template(value):
    return factor(value) + 1


def test_a_template_is_compiled_once_per_tag_with_its_own_global_names():
    double, triple = (numba.njit(eval(f"lambda value: {k} * value")) for k in (2, 3))
    first = specialise_kernel(template, "double", factor=double)
    assert first is specialise_kernel(template, "double", factor=double)
    assert (first(5), specialise_kernel(template, "triple", factor=triple)(5)) == (11, 16)


def test_compilation_error_is_one_line():
    assert find_compilation_error(numba.njit(lambda value: value + 1), numba.float64) is None
    assert "numba.njit" in find_compilation_error(lambda value: value, numba.float64)
    reason = find_compilation_error(numba.njit(lambda value: undefined_name(value)), numba.float64)  # noqa: F821
    assert "undefined_name" in reason
    assert "\n" not in reason
