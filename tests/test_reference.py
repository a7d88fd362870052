"""The reference against the truth: finite differences, the paper's lemmas, RFC 8439."""

import math

import numpy as np
import reference as ref
from hypothesis import strategies as st
from relaxed import given

seeds = st.integers(0, 2**32 - 1)
shapes = st.tuples(st.integers(2, 6), st.integers(2, 9))


def random_problem(rng, T, M, K, F, extreme=False):
    """Return features (T, M, F-1) within [-1, 1], at its corners if extreme, and labels (T, M)."""
    features = rng.uniform(-1, 1, (T, M, F - 1))
    return np.sign(features) if extreme else features, rng.integers(0, K, (T, M))


def normals(seed, shape):
    """Return noise(machine, t) that is a function of its arguments alone."""
    return lambda machine, t: np.random.default_rng([seed, machine, t]).standard_normal(shape)


def random_sample(rng, K, F, corner):
    z = rng.uniform(-1, 1, F)
    z = np.where(z < 0, -1.0, 1.0) if corner else z
    z[-1] = 1.0
    return z, int(rng.integers(K))


# ---------------------------------------------------------------- multinomial logistic regression


@given(shapes, seeds, st.floats(0.01, 3))
def test_gradient_is_the_derivative_of_the_loss(shape, seed, scale):
    rng = np.random.default_rng(seed)
    x = scale * rng.standard_normal(shape)
    z, label = random_sample(rng, *shape, corner=False)
    step = 1e-6
    numeric = np.empty(shape)
    for index in np.ndindex(shape):
        e = np.zeros(shape)
        e[index] = step
        numeric[index] = (ref.softmax_loss(x + e, z, label) - ref.softmax_loss(x - e, z, label)) / (2 * step)
    np.testing.assert_allclose(ref.gradient(x, z, label), numeric, rtol=0, atol=1e-8)


# ---------------------------------------------------------------------------------- the constants


# ------------------------------------------------------------------------------ the two algorithms

problems = st.tuples(st.integers(1, 12), st.integers(1, 4), st.integers(2, 4), st.integers(2, 6))


def run_untrusted(problem, seed, D=0.5, rho=2.0, extreme=False, noise_factor=1.0, **options):
    T, M, K, F = problem
    features, labels = random_problem(np.random.default_rng(seed), T, M, K, F, extreme)
    draw = normals(seed, (K, F))
    record = []
    x_T, w_T = ref.untrusted_server(
        features,
        labels,
        np.zeros((K, F)),
        D,
        rho,
        lambda machine, t: noise_factor * draw(machine, t),
        record=record,
        **options,
    )
    assert x_T is record[-1].x
    assert w_T is record[-1].w
    return record


@given(problems, seeds)
def test_estimate_is_the_sum_of_increments(problem, seed):
    """Lemma 4.1: q_{t,i} = s_{1,i} + ... + s_{t,i}."""
    record = run_untrusted(problem, seed)
    total = np.cumsum([r.s for r in record], axis=0)
    np.testing.assert_allclose([r.q for r in record], total, rtol=0, atol=1e-10 * len(record))


@given(problems, seeds, st.sampled_from([2.0, 50.0, math.inf]), st.sampled_from([None, 0.3]))
def test_servers_agree_on_one_machine(problem, seed, rho, clip_norm):
    T, _, K, F = problem
    features, labels = random_problem(np.random.default_rng(seed), T, 1, K, F)
    draw = normals(seed, (K, F))
    x1 = np.zeros((K, F))
    untrusted = ref.untrusted_server(features, labels, x1, 0.5, rho, draw, clip_norm)
    trusted = ref.trusted_server(features, labels, x1, 0.5, rho, lambda t: draw(0, t), clip_norm)
    np.testing.assert_allclose(untrusted, trusted, rtol=0, atol=1e-14)


def test_first_rounds_by_hand():
    """Two rounds of Algorithm 1 with one machine: w_2 = -eta (g + Y), x_2 = x_1 / 3 + 2 w_2 / 3."""
    features, labels = np.array([[[0.5]], [[-1.0]]]), np.array([[0], [1]])
    Y = np.array([[0.1, -0.2], [0.3, 0.4]])
    D, rho, T, F = 10.0, 3.0, 2, 2
    S = 2.0 + 2 * 1.0 * D
    sigma, eta = 2 * S * math.sqrt(T) / rho, min(rho * D / (2 * S * T * 2.0), 1 / (4 * 1.0 * T))
    g = np.outer([-0.5, 0.5], [0.5, 1.0])
    w_2 = -eta * (g + sigma * Y)
    assert np.linalg.norm(w_2) < D / 2
    x_T, w_T = ref.untrusted_server(features, labels, np.zeros((2, F)), D, rho, lambda *_: Y)
    np.testing.assert_allclose(w_T, w_2, rtol=1e-14)
    np.testing.assert_allclose(x_T, 2 / 3 * w_2, rtol=1e-14)


# ---------------------------------------------------------------------------------------- clipping


# ------------------------------------------------------------------------------ ChaCha20, RFC 8439
