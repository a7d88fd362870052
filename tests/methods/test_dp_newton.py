"""DP-Newton against plain NumPy: noised second moments and gradients in rounds, and steps from them."""

import math

import numpy as np
import pytest
from helpers.faults import half_sigma
from helpers.noise import drawn_noise
from helpers.plain_moments import CURVATURE, plain_minimum, plain_moments, source_for
from helpers.property_tests import given
from helpers.simulations import simulation_of
from hypothesis import strategies as st

from mu2mpi.analysis.privacy_reports import claim_contradictions
from mu2mpi.audit.trials import audit
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.options import MAX_REAL_OPTION
from mu2mpi.core.parallel import Communicator
from mu2mpi.privacy.noise.noise_stream import MACHINE_STREAM, SERVER_STREAM, key_to_uint32, root_key

seeds = st.integers(0, 2**31)
NAME, SERVERS = "dp-newton", ("untrusted", "trusted", "aggregated")


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("loss", ["squared", "softmax"])
@given(
    st.tuples(st.integers(1, 3), st.integers(20, 40), st.integers(2, 6)),
    st.sampled_from([4.0, 1e3, math.inf]), st.sampled_from([None, 1.0]), st.sampled_from([0.0, 0.5]),
    st.sampled_from([None, 3.0]), seeds, max_examples=6,
)  # fmt: skip
def test_a_run_equals_the_method_in_plain_numpy(server, loss, sizes, rho, clip_norm, l2, eta_scale, seed):
    """Step by step: moments averaged over rounds, clipped residuals, and the regulariser's level."""
    M, n, T = sizes
    source = source_for(loss, seed, M * n, 4)
    experiment = Experiment(
        method=NAME, server=server, loss=loss, machines=M, rho=rho, diameter=4.0, clip_norm=clip_norm,
        rounds=T, l2=l2 or None, eta_scale=eta_scale, seed=seed,
        masks="none" if server == "aggregated" else None,
    )  # fmt: skip
    simulation = simulation_of(experiment, source)
    constants, result = simulation.constants, simulation.run()
    samples, mechanism = source.read_training(np.arange(M * n)), constants.mechanism
    z, C, h = np.hstack([samples.features, np.ones((M * n, 1))]), constants.reduced_clip_norm, CURVATURE[loss]
    assert mechanism.sigma == pytest.approx(1.5 * mechanism.clip_norm * math.sqrt(T) / rho)
    shares = (1 if M == 1 else M - 1) if server == "aggregated" else 1
    tau = mechanism.sigma * math.sqrt((1 if server == "trusted" else M) / shares)
    key = key_to_uint32(simulation.run_keys.noise_key(root_key(seed), result.experiment))
    who = [(SERVER_STREAM, 0)] if server == "trusted" else [(MACHINE_STREAM, i) for i in range(M)]
    (rows, F), N = result.x.shape, M * n
    eta = MAX_REAL_OPTION if eta_scale is None else eta_scale / constants.problem.smoothness
    assert constants.eta == pytest.approx(eta, rel=1e-12)
    w, mean = np.zeros((rows, F)), np.zeros((F, F))
    for t in range(1, T):
        S, b, scale = plain_moments(loss, z, samples.labels, C, w)
        noise = np.zeros((F + rows, F))
        if rho < math.inf:
            draws = sum(drawn_noise(constants, key, *one, t) for one in who)
            noise = draws * mechanism.sigma / math.sqrt(shares)
        mean += (S + (noise[:F] + noise[:F].T) / 2 - mean) / t
        H, gradient = mean + l2 * N / h * np.eye(F), (b + noise[F:] / scale + l2 * N * w) / h
        least = 2.0**-25 * math.sqrt(F) * N * C / math.sqrt(2)
        level = max(tau * math.sqrt(2 * F / t) / 2, N / (constants.eta * h), least)
        w = w + plain_minimum(H, gradient, level)
        w *= min(1.0, 2.0 / np.linalg.norm(w))
    # A draw of noise is rounded, as each product is.
    rounding = (T - 1) * M * (n + 9) * mechanism.grid_spacing * (1 / (h * scale) + 2.0) / level
    np.testing.assert_allclose(result.x, w, rtol=0, atol=1e-7 * np.linalg.norm(w) + rounding)
    assert claim_contradictions(result) == []


@pytest.mark.parametrize("loss", ["squared", "logistic", "softmax", "smoothed-hinge"])
def test_without_noise_it_finds_the_minimum(loss):
    """That of the loss whose gradients are clipped: their mean, with that of the regulariser, is zero."""
    source = source_for(loss, 1, 400, 3)
    experiment = Experiment(
        method=NAME, loss=loss, machines=2, rho=math.inf, diameter=1e4, l2=0.1, rounds=60, seed=1,
        eta_scale=1e6,
    )  # fmt: skip
    simulation = simulation_of(experiment, source)
    C, x = simulation.constants.reduced_clip_norm, simulation.run().x
    samples = source.read_training(np.arange(400))
    z = np.hstack([samples.features, np.ones((400, 1))])
    _, b, _ = plain_moments(loss, z, samples.labels, C, x)
    np.testing.assert_allclose(b / 400 + 0.1 * x, 0, atol=1e-7)


@pytest.mark.parametrize("server", SERVERS[:2])
@pytest.mark.parametrize("neighbours", ["replace", "zero-out"])
def test_an_audit_reaches_the_claim_and_refutes_half_the_noise(monkeypatch, server, neighbours):
    experiment = Experiment(
        method=NAME, loss="logistic", server=server, machines=3, rounds=4, rho=1.0, seed=1,
        neighbours=neighbours, diameter=2.0,
    )  # fmt: skip
    report = audit(experiment, 300, Communicator())
    assert report.failures == []
    low, high = report.verdicts[-1].overall_separation.relative_mu[1:]
    assert 0.5 < low < 1 < high
    half_sigma(monkeypatch)
    assert any("mu is at least" in text for text in audit(experiment, 300, Communicator()).refutations)
