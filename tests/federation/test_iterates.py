"""Rounding errors of gradients and steps: measured in 60 digits, and within bounds."""

import math
from fractions import Fraction

import mpmath
import numba
import numpy as np
import pytest
from helpers.property_tests import given
from hypothesis import strategies as st

from mu2mpi.federation.iterates import take_step
from mu2mpi.losses.model.ball import COORDINATES_PER_NORM_BLOCK
from mu2mpi.losses.model.linear import FEATURES_PER_TILE, SAMPLES_PER_BLOCK, model_margins
from mu2mpi.losses.softmax import SoftmaxLoss

residual = SoftmaxLoss.residual_kernel
UNIT_ROUNDOFF = 1.01 * 2.0**-53
"""Bound on the relative error of an operation; 1.01 covers products of errors."""

seeds = st.integers(0, 2**31)
radii = st.sampled_from([1e-100, 1e-3, 1.0, 30.0, 1e4, 1e12, 1e99])
# How coordinates differ in size: not at all, by some powers of ten, or by as many as there are.
spreads = st.sampled_from([0.0, 3.0, 30.0])


@numba.njit
def residual_at(x, z, label):
    margins, of_rest = np.empty((len(z), len(x))), np.empty((len(z), (len(x) + 1) // 2))
    model_margins(x, z, x.shape[1], margins, of_rest)
    residual(margins[0], label)
    return margins[0]


def exact_residual(x, z, label):
    """Return softmax(x z) - onehot(label) in 60 digits, with logits that are exact."""
    logits = [
        sum(Fraction(a) * Fraction(b) for a, b in zip(row, z.tolist(), strict=True)) for row in x.tolist()
    ]
    powers = [mpmath.exp(_mp(logit - max(logits))) for logit in logits]
    total = mpmath.fsum(powers)
    return [power / total - (k == label) for k, power in enumerate(powers)]


def _mp(value):
    return mpmath.mpf(value.numerator) / value.denominator


def uneven(rng, shape, spread):
    return rng.standard_normal(shape) * 10.0 ** -rng.uniform(0, spread, shape)


def gradient_errors(x, z, label, batch):
    """Return the error of the gradient of a sample, and the bound on it."""
    z_batch = np.zeros((batch, len(z)))
    z_batch[0] = z
    found = residual_at(x, z_batch, label)
    with mpmath.workdps(60):
        exact = exact_residual(x, z, label)
        error = mpmath.sqrt(mpmath.fsum((a - b) ** 2 for a, b in zip(found.tolist(), exact, strict=True)))
        length = float(np.linalg.norm(z))
        G, L, roundoffs, *_ = SoftmaxLoss().constants(length**2, 1.0, len(x))
        bound = UNIT_ROUNDOFF * (x.shape[1] * float(np.linalg.norm(x)) * L + roundoffs * G)
        return float(error) * length, bound


@pytest.mark.slow
@given(
    st.integers(2, 12), st.integers(1, 40) | st.just(FEATURES_PER_TILE + 9), radii, spreads, spreads,
    st.booleans(), st.sampled_from([1, SAMPLES_PER_BLOCK]), seeds, max_examples=150,
)  # fmt: skip
def test_gradients_are_off_by_no_more_than_is_accounted_for(
    classes, features, radius, of_x, of_z, cancels, batch, seed
):
    """Models of any length, uneven ones, and those of which large logits cancel."""
    rng = np.random.default_rng(seed)
    x, z = uneven(rng, (classes, features), of_x), uneven(rng, features, of_z)
    if cancels:
        # Nearly orthogonal to the sample, so that a logit is a small difference of large numbers.
        x -= np.outer(x @ z, z) / (z @ z)
    x *= radius / (np.linalg.norm(x) or 1.0)
    z /= np.abs(z).max()
    error, bound = gradient_errors(x, z, seed % classes, batch)
    assert error <= bound


def step_errors(w, total, step, radius):
    """Return the error of a step with its projection, the norm of what is subtracted, and the bound."""
    new, x_next = w.copy(), np.zeros_like(w)
    take_step(new, new, np.zeros_like(w), x_next, total, step, radius, 1.0)
    np.testing.assert_array_equal(new, x_next)
    with mpmath.workdps(60):
        pairs = list(zip(w.ravel().tolist(), total.ravel().tolist(), strict=True))
        moved = [_mp(Fraction(a) - Fraction(step) * int(b)) for a, b in pairs]
        factor = min(
            1, mpmath.mpf(radius) / mpmath.sqrt(mpmath.fsum(a * a for a in moved) + mpmath.mpf(10) ** -500)
        )
        error = mpmath.sqrt(
            mpmath.fsum((a - factor * b) ** 2 for a, b in zip(new.ravel().tolist(), moved, strict=True))
        )
        move = step * float(np.linalg.norm(total.astype(float)))
        block = COORDINATES_PER_NORM_BLOCK
        additions = min(block, w.size) + math.ceil(w.size / block)
        return float(error), UNIT_ROUNDOFF * (radius * (additions / 2 + 6) + 3 * move)


@pytest.mark.slow
@given(
    st.integers(2, 6), st.integers(1, 30) | st.just(COORDINATES_PER_NORM_BLOCK + 3), radii, spreads,
    st.sampled_from([1e-12, 1.0, 3.0]), st.sampled_from([0.5, 1 - 1e-15, 1.0]), seeds, max_examples=150,
)  # fmt: skip
def test_steps_are_off_by_few_roundings(classes, features, radius, spread, length, inside, seed):
    """Iterates inside the ball and on its surface, short and long steps, sums with more bits than a float."""
    rng = np.random.default_rng(seed)
    w = uneven(rng, (classes, features), spread)
    w *= inside * radius / np.linalg.norm(w)
    total = np.rint(uneven(rng, w.shape, spread / 3) * 2.0**59).astype(np.int64) + rng.integers(
        0, 2**8, w.shape
    )
    step = length * radius / max(1.0, float(np.linalg.norm(total.astype(float))))
    error, bound = step_errors(w, total, step, radius)
    assert error <= bound
