"""AdaSSP against plain NumPy: second moments, their sensitivity and noise, and the model from them."""

import math

import numpy as np
import pytest
from helpers.faults import half_sigma
from helpers.noise import drawn_noise
from helpers.plain_losses import LOSSES
from helpers.plain_moments import CURVATURE, plain_minimum, plain_moments, source_for
from helpers.property_tests import given
from helpers.simulations import simulation_of
from hypothesis import strategies as st

from mu2mpi.analysis.privacy_reports import claim_contradictions
from mu2mpi.audit.trials import audit
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.core.parallel import Communicator
from mu2mpi.core.registry import lookup
from mu2mpi.execution.plan import resolve_plan
from mu2mpi.federation.estimators import SECOND_MOMENTS
from mu2mpi.losses.model.linear import SAMPLES_PER_BLOCK, solve_regularised
from mu2mpi.privacy.noise.noise_stream import MACHINE_STREAM, SERVER_STREAM, key_to_uint32, root_key

NAME, SERVERS = "ada-ssp", ("untrusted", "trusted")
seeds = st.integers(0, 2**31)


@pytest.mark.parametrize("server", [*SERVERS, "aggregated"])
@pytest.mark.parametrize("loss", ["squared", "softmax"])
@given(
    st.tuples(st.integers(1, 4), st.integers(20, 60)), st.sampled_from([0.5, 4.0, 1e3, math.inf]),
    st.sampled_from([None, 1.0]), st.sampled_from([0.0, 0.5]), st.sampled_from([0.5, 1e3]), seeds,
    max_examples=8,
)  # fmt: skip
def test_a_run_equals_the_method_in_plain_numpy(server, loss, sizes, rho, clip_norm, l2, diameter, seed):
    M, n = sizes
    source = source_for(loss, seed, M * n, 4)
    experiment = Experiment(
        method=NAME, server=server, loss=loss, machines=M, rho=rho, diameter=diameter, clip_norm=clip_norm,
        l2=l2 or None, seed=seed, masks="none" if server == "aggregated" else None,
    )  # fmt: skip
    simulation = simulation_of(experiment, source)
    constants, result = simulation.constants, simulation.run()
    samples, mechanism = source.read_training(np.arange(M * n)), constants.mechanism
    z = np.hstack([samples.features, np.ones((M * n, 1))])
    rows, F = result.x.shape
    assert mechanism.clip_norm == min(
        clip_norm or math.inf, math.sqrt(2) * constants.problem.max_squared_norm
    )
    assert mechanism.sigma == pytest.approx(1.5 * mechanism.clip_norm / rho)
    S, b, scale = plain_moments(loss, z, samples.labels, constants.reduced_clip_norm, np.zeros((rows, F)))
    shares, noise = (1 if M == 1 else M - 1) if server == "aggregated" else 1, np.zeros((F + rows, F))
    if rho < math.inf:
        key = key_to_uint32(simulation.run_keys.noise_key(root_key(seed), result.experiment))
        who = [(SERVER_STREAM, 0)] if server == "trusted" else [(MACHINE_STREAM, i) for i in range(M)]
        noise = sum(drawn_noise(constants, key, *one, 1) for one in who) * mechanism.sigma / math.sqrt(shares)
    S += (noise[:F] + noise[:F].T) / 2 + l2 * M * n / CURVATURE[loss] * np.eye(F)
    tau = mechanism.sigma * math.sqrt((1 if server == "trusted" else M) / shares)
    least = 2.0**-25 * math.sqrt(F) * M * n * constants.reduced_clip_norm / math.sqrt(2)
    x = plain_minimum(S, (b + noise[F:] / scale) / CURVATURE[loss], max(least, tau * math.sqrt(2 * F) / 2))
    x *= min(1.0, diameter / 2 / np.linalg.norm(x))
    # A draw of noise is rounded, as each product is.
    rounding = M * (n + 9) * mechanism.grid_spacing / np.abs(np.linalg.eigvalsh(S)).min()
    np.testing.assert_allclose(result.x, x, rtol=0, atol=(1e-7 + 30 * rounding) * np.linalg.norm(x) + 1e-12)
    assert claim_contradictions(result) == []


def test_without_noise_it_is_least_squares():
    source = source_for("squared", 1, 500, 6)
    experiment = Experiment(method=NAME, loss="squared", machines=2, rho=math.inf, diameter=1e4, seed=1)
    samples = source.read_training(np.arange(500))
    expected, *_ = np.linalg.lstsq(np.hstack([samples.features, np.ones((500, 1))]), samples.labels)
    np.testing.assert_allclose(simulation_of(experiment, source).run().x[0], expected, rtol=1e-7)


@LOSSES
@given(
    st.tuples(st.integers(1, 90), st.integers(1, 40)), st.sampled_from([1, SAMPLES_PER_BLOCK]),
    st.sampled_from([0.1, 3.0, 1e3]), st.booleans(), st.sampled_from([0.0, 1.0]), seeds, max_examples=12,
)  # fmt: skip
def test_the_kernel_adds_what_plain_numpy_adds(loss_function, shape, block, C, is_short, scale_of_x, seed):
    """Also of features whose products are often half-integers, and nothing of samples that are not finite."""
    (n, F), rng, name = shape, np.random.default_rng(seed), loss_function.name
    classes = 2 if name == "logistic" else 3
    rows = loss_function.model_rows(classes)
    features = rng.integers(-8, 9, (n, F - 1)) / 8 if is_short else rng.standard_normal((n, F - 1))
    labels = rng.integers(0, classes, n).astype(np.int32)
    labels = labels if loss_function.label_kind == "classes" else rng.uniform(-1, 1, n)
    z, spacing, q = np.hstack([features, np.ones((n, 1))]), 2.0**-34, np.zeros((F + rows, F), np.int64)
    data = np.vstack([features, np.full((1, F - 1), np.nan)]), np.append(labels, labels[:1])
    add = SECOND_MOMENTS.compile_kernel(loss_function, rows)
    x, end = scale_of_x * rng.standard_normal((rows, F)), n + (F > 1)
    add(q, x, x, *data, np.ones(n + 1), 1.0, 0, end, 1, C, spacing, block)
    S, b, scale = plain_moments(name, z, labels, C, x)
    np.testing.assert_allclose(q * spacing, np.vstack([S, scale * b]), rtol=0, atol=n * (spacing + 1e-13 * C))


@given(
    st.sampled_from(["squared", "logistic", "softmax"]), st.sampled_from([0.3, 3.0]), seeds, max_examples=60
)
def test_two_terms_are_within_the_sensitivity(loss, ratio, seed):
    """As whole numbers on the coarsest grid, at any model; at 60 degrees, opposite residuals reach it."""
    rng, loss_function, F = np.random.default_rng(seed), lookup("losses", loss), 2
    source = source_for(loss, seed, 40, F - 1)
    experiment = Experiment(method=NAME, loss=loss, machines=2, rho=1.0, seed=1, clip_norm=ratio)
    constants = simulation_of(experiment, source).constants
    C, spacing = constants.mechanism.clip_norm, constants.mechanism.grid_spacing
    kernel = SECOND_MOMENTS.compile_kernel(loss_function, rows := constants.problem.model_rows)
    angle, B = rng.uniform(0, 7, 2), math.sqrt(constants.reduced_clip_norm / math.sqrt(2))
    is_extreme = seed % 2 == 0 and loss != "softmax"
    lengths = np.ones(2) if is_extreme else np.exp(rng.normal(0, 1, 2))
    x = np.zeros((rows, F)) if is_extreme else 3 * rng.standard_normal((rows, F))
    angle[1] = angle[0] + math.pi / 3 if is_extreme else angle[1]
    labels = np.array([0, 1], np.int32) if loss != "squared" else np.array([-1.0, 1.0])
    terms = []
    for k in range(2):
        first, bias = B * lengths[k] * np.array([math.cos(angle[k]), math.sin(angle[k])])
        q = np.zeros((F + rows, F), np.int64)
        kernel(q, x, x, np.array([[first]]), labels[k:], np.ones(1), bias, 0, 1, 1,
               constants.reduced_clip_norm, spacing, 1)  # fmt: skip
        terms.append(q * spacing)
        assert np.linalg.norm(terms[k]) <= C
    distance = np.linalg.norm(terms[0] - terms[1])
    assert distance <= 1.5 * C == constants.mechanism.sensitivity
    assert not is_extreme or distance > 0.985 * 1.5 * C


@given(st.integers(1, 12), st.integers(1, 3), st.sampled_from([1e-3, 1.0, 1e3]), seeds, max_examples=60)
def test_regularised_inverse(n, rows, level, seed):
    """Eigenvalues are those of the formula; far above the level they are inverted, and others are bounded."""
    rng = np.random.default_rng(seed)
    V, _ = np.linalg.qr(rng.standard_normal((n, n)))
    s = level * rng.standard_normal(n) * 10.0 ** rng.integers(-2, 3, n)
    b, H = rng.standard_normal((rows, n)), V * s @ V.T
    H = (H + H.T) / 2
    found, f = solve_regularised(H, b, level), (s + level) / (s**2 + level * s + level**2)
    np.testing.assert_allclose(found, b @ V * f @ V.T, rtol=0, atol=1e-9 / level * np.linalg.norm(b))
    assert np.all(np.abs(f) <= (1 + 1e-12) / level)
    assert np.all(np.abs(f * s - 1)[s > level] <= (level / s[s > level]) ** 2)


def test_noise_of_symmetrised_moments():
    """Std tau on the diagonal, tau / sqrt(2) beside it, to 5 standard errors; norm of about sqrt(2 F) tau."""
    F, M = 200, 4
    experiment = Experiment(method=NAME, loss="squared", machines=M, rho=1.0, seed=1)
    simulation = simulation_of(experiment, source_for("squared", 1, 4 * M, F - 1))
    key = key_to_uint32(simulation.run_keys.noise_key(root_key(1), simulation.experiment))
    noise = sum(drawn_noise(simulation.constants, key, MACHINE_STREAM, i, 1) for i in range(M)) / math.sqrt(M)
    W = (noise[:F] + noise[:F].T) / 2
    for values, std in ((np.diag(W), 1.0), (W[np.triu_indices(F, 1)], math.sqrt(0.5))):
        assert abs(values.mean()) < 5 * std / math.sqrt(values.size)
        assert abs(values.var() / std**2 - 1) < 5 * math.sqrt(2 / values.size)
    # The largest eigenvalue deviates from its mean by more than 5 with a probability below 1e-5.
    assert abs(np.linalg.norm(W, 2) - math.sqrt(2 * F)) < 5


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("neighbours", ["replace", "zero-out"])
def test_an_audit_reaches_the_claim_and_refutes_half_the_noise(monkeypatch, server, neighbours):
    experiment = Experiment(
        method=NAME,
        loss="logistic",
        server=server,
        machines=3,
        rounds=3,
        rho=1.0,
        seed=1,
        neighbours=neighbours,
    )
    report = audit(experiment, 300, Communicator())
    assert report.failures == []
    verdict = report.verdicts[-1]
    assert verdict.is_claim_tight
    low, high = verdict.overall_separation.relative_mu[1:]
    assert 0.5 < low < 1 < high
    half_sigma(monkeypatch)
    assert any("mu is at least" in text for text in audit(experiment, 300, Communicator()).refutations)


@pytest.mark.slow
def test_two_thousand_features():
    source = source_for("squared", 1, 50, 1999)
    experiment = Experiment(method=NAME, loss="squared", machines=2, rho=1e4, seed=1, diameter=100.0)
    result = simulation_of(experiment, source).run()
    samples = source.read_training(np.arange(50))
    predictions = samples.features @ result.x[0, :-1] + result.x[0, -1]
    assert np.corrcoef(predictions, samples.labels)[0, 1] > 0.9


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"rounds": 1}, "--rounds"),
        ({"rounds": 1 << 20}, "--rounds"),
        ({"participation": "bernoulli:0.5"}, "participation"),
    ],
)
def test_refused_settings(settings, words):
    given_settings = {"method": NAME, "loss": "squared", "machines": 2, **settings}
    with pytest.raises(InputError, match=words):
        resolve_plan(Experiment.from_settings(given_settings), source_for("squared", 1, 40, 3), 1)
