"""The noise as it is drawn against exact normals: each error, all words in the small, the tails, the cost."""

import math

import mpmath
import numba
import numpy as np
import pytest
from helpers import reference as ref
from helpers.noise import standard_normal
from helpers.property_tests import given
from helpers.simulations import make_schedule
from helpers.slow import slow
from hypothesis import strategies as st
from scipy import stats

from mu2mpi.privacy.accounting.gaussian_dp import epsilon_exact
from mu2mpi.privacy.noise.box_muller import (
    MIN_UNIFORM_BITS,
    exponent_and_fraction,
    normal_pair,
    split_float,
    squared_radius,
)
from mu2mpi.privacy.noise.noise_stream import (
    CHUNK_PAIRS,
    CHUNK_WORDS,
    MACHINE_STREAM,
    add_noise,
    key_to_uint32,
    padded_zeros,
    root_key,
)
from mu2mpi.privacy.noise.sampler_error import (
    DITHER_BITS,
    DITHER_THRESHOLD,
    MIN_STD_UNITS,
    SAMPLER_BUDGET_SHARE,
    SamplerError,
    epsilon_with_sampler,
    is_sampler_negligible,
    rounding_error,
    sampler_error,
)


@numba.njit
def small_square(value, shift):
    e, v = split_float(value, shift)
    return squared_radius(e, v)


# ------------------------------------------------------------------------------------ all words, in the small


FURTHER_BITS = 6


@numba.njit
def enumerate_cells(bits, angle_bits, small_bits, k, reach):
    """Return the probability of each cell of a grid of 2^-k, by all words of so many bits.

    Words of fewer than `small_bits` are continued by a further word, as words below 2^44 are in the large;
    each word stands for the middle of those that begin with it.
    """
    n = reach * 2**k
    cells = np.zeros((2 * n + 1, 2 * n + 1))
    angles = 2**angle_bits
    for i in range(2**bits):
        further = 2**FURTHER_BITS if i < 2**small_bits else 1
        for j in range(further):
            if further > 1:
                square = small_square(float((i * further + j) * 2 + 1), bits + FURTHER_BITS + 1.0)
                weight = 2.0 ** (-bits - FURTHER_BITS - angle_bits)
            else:
                middle = (np.uint64(i) << np.uint64(64 - bits)) + (np.uint64(1) << np.uint64(63 - bits))
                e, v = exponent_and_fraction(middle)
                square, weight = squared_radius(e, v), 2.0 ** (-bits - angle_bits)
            for a in range(angles):
                place = (np.uint64(a >> 2) << np.uint64(66 - angle_bits)) + (
                    np.uint64(1) << np.uint64(65 - angle_bits)
                )
                g, h = normal_pair(square, place | np.uint64(a & 3))
                x, y = int(np.rint(g * 2.0**k)) + n, int(np.rint(h * 2.0**k)) + n
                if 0 <= x <= 2 * n and 0 <= y <= 2 * n:
                    cells[x, y] += weight
    return cells


def exact_cells(k, reach):
    n = reach * 2**k
    edges = (np.arange(-n, n + 2) - 0.5) / 2**k
    mass = np.diff(stats.norm.cdf(edges))
    return np.outer(mass, mass)


def bound_in_the_small(bits, angle_bits, small_bits, k, reach):
    """The bound of docs/background/sampler.md for each cell, with the errors of so few bits."""
    n, h = reach * 2**k, 2.0**-k
    centre = np.arange(-n, n + 1) / 2**k
    r = np.hypot(centre[:, None], centre[None, :])
    near, far = np.maximum(r - h, 0), r + h
    u = np.exp(-(far**2) / 2)
    spacing = np.where(u < 2.0 ** (small_bits - bits), 2.0 ** (-bits - FURTHER_BITS), 2.0**-bits)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        error = spacing / 2 / (u * near) + far * math.pi / 2 * 2.0 ** (1 - angle_bits)
        tau = 4 * error / h * (1 + error / h) * np.exp(math.sqrt(2) * far * (h + 2 * error))
    return np.where(r >= 2 * h, tau, np.inf)


@pytest.mark.slow
@pytest.mark.parametrize(("bits", "angle_bits"), [(12, 12), *slow((13, 12), (12, 13))])
@pytest.mark.parametrize("k", [2, 3, 4])
def test_all_words_in_the_small_keep_to_the_bound(bits, angle_bits, k):
    small = bits // 2 - 2
    found, exact = enumerate_cells(bits, angle_bits, small, k, 4), exact_cells(k, 4)
    deviations, bound = np.abs(found / exact - 1), bound_in_the_small(bits, angle_bits, small, k, 4)
    checked = bound < 0.5
    assert checked.mean() > 0.5
    assert np.all(deviations[checked] <= bound[checked])


def test_words_that_are_not_continued_break_the_bound_in_the_tail():
    """The check in the small would have found a lattice of absolute spacing."""
    bits, k = 12, 3
    found, exact = enumerate_cells(bits, 12, 0, k, 4), exact_cells(k, 4)
    bound = bound_in_the_small(bits, 12, bits // 2 - 2, k, 4)
    checked = bound < 0.5
    assert np.any(np.abs(found / exact - 1)[checked] > bound[checked])


# ------------------------------------------------------------------------------------ tails and spreading


def test_small_words_are_continued_by_further_ones_of_the_stream():
    """In 10^7 pairs some ten words are below 2^44; their radii follow from the stream as it is documented."""
    key = root_key(5)
    found = 0
    for t in range(1, 9):
        pairs = standard_normal(key_to_uint32(key), MACHINE_STREAM, 3, t, 5_000 * CHUNK_WORDS).reshape(
            -1, 2, CHUNK_PAIRS
        )
        squares = (pairs**2).sum(axis=1)
        for chunk, i in np.argwhere(squares > 27.73):
            words = [
                int(ref.noise_words(key, (MACHINE_STREAM + 16 * level, 3, t), int(chunk))[i])
                for level in range(3)
            ]
            assert words[0] < 2**MIN_UNIFORM_BITS
            u = (mpmath.mpf(words[0]) * 2**64 + words[1]) / mpmath.mpf(2) ** 128
            assert abs(squares[chunk, i] + 2 * mpmath.log(u)) < 1e-13
            found += 1
    assert 1 <= found < 30


@given(st.floats(DITHER_THRESHOLD, 2.0**45), st.integers(1, 700), max_examples=20)
def test_on_a_fine_grid_a_draw_is_spread_by_uniform_integers(scale, d):
    key = root_key(6)
    flat, _ = padded_zeros((1, d))
    out, shaped = padded_zeros((1, d))
    add_noise(out, flat, key_to_uint32(key), MACHINE_STREAM, 2, 1, 9, scale)
    bits = (int(scale).bit_length() - 1) - DITHER_BITS - 1
    words = np.concatenate(
        [ref.noise_words(key, (MACHINE_STREAM + 256, 2, 9), c) for c in range(-(-d // CHUNK_WORDS))]
    )
    offsets = (words >> np.uint64(63 - bits)).astype(np.int64) - 2**bits if scale > DITHER_THRESHOLD else 0
    draw = np.rint(scale * standard_normal(key_to_uint32(key), MACHINE_STREAM, 2, 9, d)).astype(np.int64)
    assert np.all(np.abs(shaped[0] - draw - (offsets[:d] if scale > DITHER_THRESHOLD else 0)) <= 1)
    if scale > DITHER_THRESHOLD:
        assert -(2**bits) <= offsets.min() <= offsets.max() < 2**bits
        assert 2.0 ** -(DITHER_BITS + 1) <= 2.0 ** (bits + 1) / scale <= 2.0**-DITHER_BITS


# ----------------------------------------------------------------------------------------- what it costs


@pytest.mark.slow
@given(
    st.floats(math.log(0.01), math.log(100)).map(math.exp),
    st.floats(-30, -1).map(lambda x: 10**x),
    st.integers(1, 10**11),
    st.floats(12.001, 40).map(lambda x: 2**x),
    max_examples=20,
)
def test_what_is_stated_is_what_the_theorem_says(rho, delta, draws, scale):
    found = epsilon_with_sampler(
        lambda d: epsilon_exact(rho, d), delta, sampler_error(1, draws, scale, scale)
    )
    expected = ref.epsilon_sampled(lambda d: ref.epsilon_exact(rho, d), delta, draws, scale)
    assert found == pytest.approx(float(expected), rel=1e-9)


def test_the_cost_grows_with_draws_and_grid_and_is_refused_where_nothing_is_known():
    some = sampler_error(100, 10, 2.0**20, 2.0**20)
    more = sampler_error(100, 20, 2.0**20, 2.0**20)
    finer = sampler_error(100, 10, 2.0**20, 2.0**21)
    assert (
        SamplerError().log_ratio_bound(30)
        == 0
        < some.log_ratio_bound(30)
        < more.log_ratio_bound(30)
        < finer.log_ratio_bound(30)
    )
    assert more == some + some
    assert sampler_error(100, 10, DITHER_THRESHOLD * 2, DITHER_THRESHOLD * 4).log_ratio_bound(
        30
    ) < some.log_ratio_bound(30)
    assert math.isinf(sampler_error(1, 1, MIN_STD_UNITS * 0.99, DITHER_THRESHOLD).sum_squared_ratio_errors)
    assert math.isinf(epsilon_with_sampler(lambda _: 1.0, 1e-5, SamplerError(1.0, 1.0)))
    assert epsilon_with_sampler(lambda _: 1.0, 1e-5, SamplerError()) == 1.0
    assert math.isinf(epsilon_with_sampler(lambda _: math.inf, 1e-5, some))
    assert not is_sampler_negligible(1 + 2 * SAMPLER_BUDGET_SHARE, 1.0, 1e-5)
    # The bound ends at some radius, so that nothing is known of what is rarer than to pass it.
    assert epsilon_with_sampler(lambda _: 610.0, 1e-5, some) < 611
    assert math.isinf(epsilon_with_sampler(lambda _: 620.0, 1e-5, some))
    assert is_sampler_negligible(math.inf, 620.0, 1e-5)


# ------------------------------------------------------------------------------------- sums of rounded parts


def rounded_normal(scale, shift, far=40):
    """Return the probabilities of round(shift + scale z), from -far to far."""
    edges = (np.arange(-far, far + 2) - 0.5 - shift) / scale
    # From the nearer end, so that small ones are exact.
    return np.where(
        edges[1:] > 0, stats.norm.sf(edges[:-1]) - stats.norm.sf(edges[1:]), np.diff(stats.norm.cdf(edges))
    )


def spread_normal(scale, shift, uniforms, far=40, steps=64):
    """Return the probabilities of round(shift + scale z + a sum of uniform numbers), from -far to far.

    The uniform numbers, but for one that is integrated, and rounding make a density of which Gauss's formula
    takes pieces of 1 / steps: what it leaves out is far below the differences that are looked for.
    """
    nodes, weights = np.polynomial.legendre.leggauss(8)
    # The sum of `uniforms` and the one that rounding is, as a piecewise polynomial: Irwin and Hall's.
    n, x = (
        uniforms + 1,
        (np.arange(0, (uniforms + 1) * steps)[:, np.newaxis] + (nodes + 1) / 2).ravel() / steps,
    )
    density = sum(
        (-1) ** k * math.comb(n, k) * np.maximum(x - k, 0) ** (n - 1) for k in range(n + 1)
    ) / math.factorial(n - 1)
    weight = np.tile(weights / 2 / steps, (uniforms + 1) * steps) * density
    places = np.arange(-far, far + 1)[:, np.newaxis] - shift - (x - n / 2)
    return stats.norm.pdf(places / scale) @ weight / scale


@pytest.mark.parametrize("parts", [2, 3, 5])
@pytest.mark.parametrize("scale", [1.0, 1.1, 1.3, 1.5])
@pytest.mark.parametrize("shifts", [(0.0,), (0.5,), (0.25, -0.4, 0.1)])
def test_a_sum_of_rounded_normals_is_as_close_as_it_is_taken_to_be(parts, scale, shifts):
    """To the normal of their variance, spread by uniform numbers and rounded once; each part is shifted."""
    shifts = np.resize(shifts, parts)
    found = rounded_normal(scale, shifts[0])
    for shift in shifts[1:]:
        found = np.convolve(found, rounded_normal(scale, shift), mode="same")
    exact = spread_normal(scale * math.sqrt(parts), shifts.sum(), parts - 1)
    assert exact.sum() == pytest.approx(1, abs=1e-12)
    variation = np.abs(found - exact).sum() / 2
    assert variation <= rounding_error(1, parts, scale).total_variation
    # They do differ, and more so than what is left out of either.
    assert scale > 1.2 or variation > 1e-10


def test_on_the_grid_of_messages_parts_cost_nothing_but_their_draws():
    assert rounding_error(10**15, 2, MIN_STD_UNITS).total_variation == 0
    assert rounding_error(10**15, 10**6, MIN_STD_UNITS).total_variation == 0
    assert rounding_error(10, 1, 1.0) == SamplerError()
    assert rounding_error(20, 3, 2.0).total_variation == pytest.approx(
        2 * rounding_error(10, 3, 2.0).total_variation
    )
    # Of what is left to it, a rest leaves less delta to exact noise, and more than that nothing.
    exact = epsilon_exact(1.0, 1e-6)
    assert (
        exact
        < epsilon_with_sampler(lambda x: epsilon_exact(1.0, x), 1e-6, SamplerError(0, 0, 1e-30))
        < exact * 1.002
    )
    assert math.isinf(epsilon_with_sampler(lambda x: epsilon_exact(1.0, x), 1e-6, SamplerError(0, 0, 1e-10)))


@pytest.mark.parametrize("colluders", [0, 3, 9])
@pytest.mark.parametrize("method", ["mu2-sgd", "anytime-dp-mf"])
def test_the_account_counts_the_parts_of_which_a_sum_is_made(method, colluders):
    """Each is smaller by the root of their number, and every message holds so many."""
    settings = {"rounds": 50, "machines": 10, "classes": 3, "features": 5, "rho": 1.0}
    mechanism = make_schedule(
        method, server="aggregated", server_options={"colluders": colluders}, **settings
    ).mechanism
    parts = 10 - colluders
    assert mechanism.noise_shares == parts
    unit = mechanism.sigma / mechanism.grid_spacing / math.sqrt(parts)
    assert unit >= MIN_STD_UNITS
    largest = mechanism.correlation.column_norm(1) if mechanism.correlation else 1
    expected = sampler_error(15, 50 * parts, unit, unit * largest, mechanism.dither_threshold)
    assert mechanism.guarantee().sampler_error == pytest.approx(expected)
    trusted = make_schedule(method, server="trusted", **settings).mechanism
    assert mechanism.sigma == trusted.sigma
    assert mechanism.guarantee().rho == trusted.guarantee().rho
