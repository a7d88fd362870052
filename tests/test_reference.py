"""The reference against the truth: finite differences, the paper's lemmas, RFC 8439."""

import math

import numpy as np
import pytest
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


@given(shapes, seeds, st.floats(0.01, 10), st.floats(1e-4, 10), st.booleans())
def test_loss_is_convex_lipschitz_and_smooth(shape, seed, scale, distance, corner):
    rng = np.random.default_rng(seed)
    F = shape[1]
    x = scale * rng.standard_normal(shape)
    y = x + distance * rng.standard_normal(shape)
    z, label = random_sample(rng, *shape, corner)
    g, h = ref.gradient(x, z, label), ref.gradient(y, z, label)
    f, away = ref.softmax_loss(x, z, label), ref.softmax_loss(y, z, label)
    tangent = f + np.vdot(g, y - x)
    assert away >= tangent - 1e-9 * (1 + abs(tangent))
    assert abs(away - f) <= ref.lipschitz(F) * np.linalg.norm(y - x) * (1 + 1e-9)
    assert np.linalg.norm(g) <= ref.lipschitz(F) * (1 + 1e-12)
    assert np.linalg.norm(g - h) <= ref.smoothness(F) * np.linalg.norm(y - x) * (1 + 1e-9) + 1e-12


def test_g_and_l_are_the_smallest_that_hold():
    # All features at the bound, certain of the wrong class; then undecided between two classes.
    F = 7
    z = np.ones(F)
    x = np.zeros((2, F))
    x[0] = 100.0
    assert np.linalg.norm(ref.gradient(x, z, 1)) == pytest.approx(ref.lipschitz(F), rel=1e-12)
    y = 1e-5 * np.outer([1, -1], z)
    change = ref.gradient(y, z, 0) - ref.gradient(-y, z, 0)
    assert np.linalg.norm(change) == pytest.approx(ref.smoothness(F) * np.linalg.norm(2 * y), rel=1e-6)


def test_loss_of_huge_scores_stays_finite():
    z = np.array([1.0, 1.0])
    x = np.array([[1e4, 0.0], [-1e4, 0.0]])
    assert ref.softmax_loss(x, z, 0) == 0.0
    assert ref.softmax_loss(x, z, 1) == 2e4


def test_loss_and_accuracy_of_a_test_set():
    rng = np.random.default_rng(0)
    features, labels = rng.uniform(-1, 1, (20, 3)), rng.integers(0, 3, 20)
    nothing_learned = np.zeros((3, 4))
    assert ref.mean_loss(nothing_learned, features, labels) == pytest.approx(math.log(3))
    # Every score is equal, and the lowest class wins.
    assert ref.accuracy(nothing_learned, features, labels) == pytest.approx(np.mean(labels == 0))
    x = rng.standard_normal((3, 4))
    best = np.argmax(features @ x[:, :-1].T + x[:, -1], axis=1)
    assert ref.accuracy(x, features, best) == 1.0


# ---------------------------------------------------------------------------------- the constants


def test_constants_of_the_mnist_experiments():
    # Section 4.3 of the paper: 785 features with the bias, D = 0.1.
    G, L, S = ref.lipschitz(785), ref.smoothness(785), ref.increment_bound(785, 0.1)
    assert round(G, 1) == 39.6
    assert L == 392.5
    assert round(S, 1) == 118.1


@pytest.mark.parametrize("M", [1, 10, 100])
def test_noise_and_learning_rate_of_the_theorems(M):
    rho, D, T, d = 4.0, 0.1, 600, 7850
    G, L, S = ref.lipschitz(785), ref.smoothness(785), ref.increment_bound(785, D)
    sigma = ref.noise_scale(S, T, rho)
    assert G < S
    assert sigma**2 == pytest.approx(4 * S**2 * T / rho**2)  # Theorem 4.4: sigma_{t,i}^2
    assert (sigma / M) ** 2 == pytest.approx(4 * S**2 * T / (rho * M) ** 2)  # Theorem 5.2: sigma_t^2
    untrusted = ref.eta_untrusted(rho, D, S, L, M, T, d)
    trusted = ref.eta_trusted(rho, D, S, L, M, T, d)
    assert untrusted == pytest.approx(min(rho * D * M**0.5 / (2 * S * T * d**0.5), 1 / (4 * L * T)))
    assert trusted == pytest.approx(min(rho * D * M / (2 * S * T * d**0.5), 1 / (4 * L * T)))
    assert untrusted <= trusted


def test_without_noise():
    assert ref.noise_scale(118.1, 600, math.inf) == 0.0
    for eta in (ref.eta_untrusted, ref.eta_trusted):
        assert eta(math.inf, 0.1, 118.1, 392.5, 10, 600, 7850) == 1 / (4 * 392.5 * 600)


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


@given(problems, seeds)
def test_increments_compare_consecutive_queries(problem, seed):
    """Equation s_{t,i} = g_{t,i} + alpha_{t-1} (g_{t,i} - g~_{t-1,i}), from the recorded x_t and x_{t-1}."""
    T, M, K, F = problem
    features, labels = random_problem(np.random.default_rng(seed), T, M, K, F)
    z = ref.add_bias(features)
    record = run_untrusted(problem, seed)
    for before, r in zip(record[:1] + record, record, strict=False):
        for i in range(M):
            sample = z[r.t - 1, i], labels[r.t - 1, i]
            g, g_previous = ref.gradient(r.x, *sample), ref.gradient(before.x, *sample)
            np.testing.assert_allclose(r.s[i], g + (r.t - 1) * (g - g_previous), rtol=0, atol=1e-12)


@given(problems, seeds, st.sampled_from([0.01, 1.0, 20.0]), st.sampled_from([1.0, 1e3, 1e9]), st.booleans())
def test_increments_stay_within_their_bound(problem, seed, D, noise_factor, extreme):
    """Lemma 4.2: ||s_{t,i}|| <= S; enormous noise throws w from one side of the ball to the other."""
    F = problem[3]
    for r in run_untrusted(problem, seed, D, extreme=extreme, noise_factor=noise_factor):
        norms = np.linalg.norm(r.s, axis=(1, 2))
        assert np.all(norms <= ref.increment_bound(F, D) * (1 + 1e-12))


@given(shapes, seeds, st.integers(2, 1000), st.floats(0.01, 10), st.booleans())
def test_increments_at_opposite_ends_of_the_ball(shape, seed, t, D, along_z):
    """Lemma 4.2 where the step x_t - x_{t-1} is as long as it can be, aimed along the sample or not."""
    rng = np.random.default_rng(seed)
    z, label = random_sample(rng, *shape, corner=True)
    direction = np.outer(rng.standard_normal(shape[0]), z) if along_z else rng.standard_normal(shape)
    end = D / 2 * direction / np.linalg.norm(direction)
    for x_previous, w in ((-end, end), (end, -end)):
        x = ref.next_query(t - 1, x_previous, w)
        machine = ref.Machine(shape)
        machine.estimate(t, x, x_previous, z, label)
        assert np.linalg.norm(machine.s) <= ref.increment_bound(shape[1], D) * (1 + 1e-12)


@given(problems, seeds, st.sampled_from([0.01, 1.0, 20.0]), st.sampled_from([1.0, 1e9]))
def test_queries_are_close_averages_inside_the_ball(problem, seed, D, noise_factor):
    record = run_untrusted(problem, seed, D, noise_factor=noise_factor)
    for r, before in zip(record[1:], record, strict=False):
        # The step in the proof of Lemma 4.2.
        assert before.t * np.linalg.norm(r.x - before.x) <= 2 * D * (1 + 1e-12)
    for t, r in enumerate(record, start=1):
        alpha = np.arange(1, t + 1)
        average = np.tensordot(alpha / alpha.sum(), [b.w for b in record[:t]], axes=1)
        np.testing.assert_allclose(r.x, average, rtol=0, atol=1e-12 * D)
        for point in (r.x, r.w):
            assert np.linalg.norm(point) <= D / 2 * (1 + 1e-12)


@given(problems, seeds, st.sampled_from([2.0, 50.0, math.inf]), st.sampled_from([None, 0.3]))
def test_servers_agree_on_one_machine(problem, seed, rho, clip_norm):
    T, _, K, F = problem
    features, labels = random_problem(np.random.default_rng(seed), T, 1, K, F)
    draw = normals(seed, (K, F))
    x1 = np.zeros((K, F))
    untrusted = ref.untrusted_server(features, labels, x1, 0.5, rho, draw, clip_norm)
    trusted = ref.trusted_server(features, labels, x1, 0.5, rho, lambda t: draw(0, t), clip_norm)
    np.testing.assert_allclose(untrusted, trusted, rtol=0, atol=1e-14)


@given(problems, seeds)
def test_noise_of_both_servers_is_scaled_for_the_sum(problem, seed):
    """With the same learning rate, adding all machines' draws at the trusted server changes nothing."""
    T, M, K, F = problem
    features, labels = random_problem(np.random.default_rng(seed), T, M, K, F)
    # So large a rho leaves eta = 1/(4LT) for both servers.
    rho, D, draw, x1 = 1e4, 0.5, normals(seed, (K, F)), np.zeros((K, F))
    S, L = ref.increment_bound(F, D), ref.smoothness(F)
    assert ref.eta_untrusted(rho, D, S, L, M, T, x1.size) == 1 / (4 * L * T)
    untrusted = ref.untrusted_server(features, labels, x1, D, rho, draw)
    trusted = ref.trusted_server(
        features, labels, x1, D, rho, lambda t: np.sum([draw(i, t) for i in range(M)], axis=0)
    )
    np.testing.assert_allclose(untrusted, trusted, rtol=0, atol=1e-13)


def test_noise_is_never_asked_for_without_privacy():
    def forbidden(*_):
        raise AssertionError("noise was drawn")

    features, labels = random_problem(np.random.default_rng(0), 5, 2, 3, 4)
    x1 = np.zeros((3, 4))
    untrusted = ref.untrusted_server(features, labels, x1, 0.5, math.inf, forbidden)
    trusted = ref.trusted_server(features, labels, x1, 0.5, math.inf, forbidden)
    np.testing.assert_array_equal(untrusted, trusted)


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


@given(problems, seeds, st.floats(0.01, 2))
def test_clipped_increments_keep_to_the_clipping_norm(problem, seed, clip_norm):
    record = run_untrusted(problem, seed, clip_norm=clip_norm)
    total = np.cumsum([r.s for r in record], axis=0)
    np.testing.assert_allclose([r.q for r in record], total, rtol=0, atol=1e-12)
    assert np.linalg.norm([r.s for r in record], axis=(2, 3)).max() <= clip_norm * (1 + 1e-12)


@given(problems, seeds)
def test_clipping_to_s_changes_nothing(problem, seed):
    D = 0.5
    plain = run_untrusted(problem, seed, D)
    clipped = run_untrusted(problem, seed, D, clip_norm=ref.increment_bound(problem[3], D))
    np.testing.assert_allclose([r.x for r in clipped], [r.x for r in plain], rtol=0, atol=1e-13)


@given(shapes, seeds, st.floats(0.01, 5), st.floats(1, 1e6))
def test_sums_of_neighbours_differ_by_twice_the_clipping_norm(shape, seed, C, scale):
    """With fixed queries, replacing one sample moves q_t by at most 2C, whatever the data."""
    rng = np.random.default_rng(seed)
    T = 5
    queries = rng.standard_normal((T + 1, *shape))
    samples = [(scale * rng.standard_normal(shape[1]), int(rng.integers(shape[0]))) for _ in range(T)]
    neighbour = list(samples)
    neighbour[rng.integers(T)] = (-scale * rng.standard_normal(shape[1]), int(rng.integers(shape[0])))
    one, other = ref.Machine(shape, C), ref.Machine(shape, C)
    for t in range(1, T + 1):
        q = one.estimate(t, queries[t], queries[t - 1], *samples[t - 1])
        q_neighbour = other.estimate(t, queries[t], queries[t - 1], *neighbour[t - 1])
        assert np.linalg.norm(q - q_neighbour) <= 2 * C * (1 + 1e-12)


# ------------------------------------------------------------------------------ ChaCha20, RFC 8439


def test_quarter_round_of_the_rfc():
    # Section 2.1.1.
    state = [0x11111111, 0x01020304, 0x9B8D6F43, 0x01234567]
    ref._quarter_round(state, 0, 1, 2, 3)
    assert state == [0xEA2A92F4, 0xCB1CF8CE, 0x4581472E, 0x5881C4BB]


BLOCKS = {
    "section 2.3.2": (
        bytes(range(32)),
        1,
        "000000090000004a00000000",
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e",
    ),
    "appendix A.1, vector 1": (
        bytes(32),
        0,
        "000000000000000000000000",
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586",
    ),
    "appendix A.1, vector 2": (
        bytes(32),
        1,
        "000000000000000000000000",
        "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
        "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f",
    ),
    "appendix A.1, vector 3": (
        bytes(31) + b"\x01",
        1,
        "000000000000000000000000",
        "3aeb5224ecf849929b9d828db1ced4dd832025e8018b8160b82284f3c949aa5a"
        "8eca00bbb4a73bdad192b5c42f73f2fd4e273644c8b36125a64addeb006c13a0",
    ),
    "appendix A.1, vector 4": (
        b"\x00\xff" + bytes(30),
        2,
        "000000000000000000000000",
        "72d54dfbf12ec44b362692df94137f328fea8da73990265ec1bbbea1ae9af0ca"
        "13b25aa26cb4a648cb9b9d1be65b2c0924a66c54d545ec1b7374f4872e99f096",
    ),
    "appendix A.1, vector 5": (
        bytes(32),
        0,
        "000000000000000000000002",
        "c2c64d378cd536374ae204b9ef933fcd1a8b2288b3dfa49672ab765b54ee27c7"
        "8a970e0e955c14f3a88e741b97c286f75f8fc299e8148362fa198a39531bed6d",
    ),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_of_the_rfc(name):
    key, counter, nonce, expected = BLOCKS[name]
    assert ref.chacha20_block(key, counter, bytes.fromhex(nonce)).hex() == expected


def test_keystream_of_the_rfc_encrypts_its_text():
    # Section 2.4.2: two blocks, the second one cut short.
    text = (
        b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, "
        b"sunscreen would be it."
    )
    nonce = bytes.fromhex("000000000000004a00000000")
    stream = b"".join(ref.chacha20_block(bytes(range(32)), counter, nonce) for counter in (1, 2))
    cipher = bytes(a ^ b for a, b in zip(text, stream, strict=False))
    assert cipher.hex() == (
        "6e2e359a2568f98041ba0728dd0d6981e97e7aec1d4360c20a27afccfd9fae0b"
        "f91b65c5524733ab8f593dabcd62b3571639d624e65152ab8f530c359f0861d8"
        "07ca0dbf500d6a6156a38e088a22b65e52bc514d16ccf806818ce91ab7793736"
        "5af90bbf74a35be6b40b8eedf2785e42874d"
    )


@pytest.mark.parametrize(
    ("key", "counter", "nonce"), [(31, 0, 12), (32, 2**32, 12), (32, -1, 12), (32, 0, 8)]
)
def test_chacha20_refuses_what_the_rfc_does_not_define(key, counter, nonce):
    with pytest.raises(ValueError, match="ChaCha20"):
        ref.chacha20_block(bytes(key), counter, bytes(nonce))
