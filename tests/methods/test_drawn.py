"""Methods with random batches against their pseudo-code, and their sample selection."""

import math
from functools import partial

import numpy as np
import pytest
from helpers import reference as ref
from helpers.noise import drawn_noise
from helpers.property_tests import given
from helpers.simulations import simulation_of
from helpers.sources import random_source
from hypothesis import strategies as st

from mu2mpi.analysis.privacy_reports import claim_contradictions
from mu2mpi.config.experiment import Experiment
from mu2mpi.data.partition import iid_rows
from mu2mpi.execution.plan import RunKeys
from mu2mpi.privacy.mechanisms.poisson_mechanism import PoissonMechanism
from mu2mpi.privacy.mechanisms.replacement_exact_mechanism import ReplacementExactMechanism
from mu2mpi.privacy.noise.noise_stream import (
    MACHINE_STREAM,
    SERVER_STREAM,
    derive_key,
    key_to_uint32,
    root_key,
)


def drawn(experiment, source, constants):
    """Return the inputs of the reference: the run's samples, batches and noise."""
    M, n = constants.problem.machines, constants.batching.samples_per_machine
    root = root_key(experiment.seed)
    noise_key = RunKeys.noise_key(root, experiment)
    rows = iid_rows(source.training_samples, M, n, derive_key(root, "dealing"), range(M)).T
    samples = source.read_training(rows.ravel())
    shape = (constants.problem.classes, constants.problem.features)
    key, sampling_key = key_to_uint32(noise_key), derive_key(noise_key, "sampling")

    def noise(t):
        who = (
            [(SERVER_STREAM, 0)]
            if constants.problem.server == "trusted"
            else [(MACHINE_STREAM, i) for i in range(M)]
        )
        return sum(drawn_noise(constants, key, *one, t) for one in who)

    def chosen(i, t):
        return constants.batching.batches(sampling_key, np.array([i]), np.array([t])).indices

    return ref.Drawn(
        features=samples.features.reshape(M, n, -1).astype(float) * source.feature_scale,
        labels=samples.labels.reshape(M, n), chosen=chosen, rounds=constants.rounds, batch=0.0,
        x1=np.zeros(shape), D=2 * constants.problem.radius, C=0.0, eta=0.0, sigma=0.0, noise=noise,
        unit=experiment.normalize == "unit", grid_spacing=constants.mechanism.grid_spacing,
    )  # fmt: skip


def check(result, output, w):
    assert np.linalg.norm(result.x - output) < 1e-6 * max(np.linalg.norm(output), 1e-6)
    assert np.linalg.norm(result.w - w) < 1e-6 * max(np.linalg.norm(w), 1e-6)
    assert claim_contradictions(result) == []


settings = (
    st.integers(1, 4), st.integers(2, 5), st.integers(1, 20), st.sampled_from([0.1, 5.0]),
    st.sampled_from([None, 0.3]), st.sampled_from(["none", "unit"]), st.integers(0, 2**31),
)  # fmt: skip


@pytest.mark.parametrize("server", ["untrusted", "trusted"])
@given(st.sampled_from([0.5, 4.0, math.inf]), st.booleans(), *settings, max_examples=15)
def test_noisy_minibatch_sgd_is_that_of_its_source(
    server, epsilon, of_theorem, machines, classes, dimension, D, clip_norm, normalize, seed
):
    source = random_source(seed, 8 * machines, dimension, classes, np.float32)
    chosen = {} if of_theorem else {"rounds": 9, "batch": 3}
    privacy = {"rho": math.inf} if math.isinf(epsilon) else {"epsilon": epsilon}
    experiment = Experiment(
        method="noisy-minibatch-sgd", server=server, machines=machines, diameter=D, clip_norm=clip_norm,
        normalize=normalize, seed=seed, evaluations=3, **chosen, **privacy,
    )  # fmt: skip
    simulation = simulation_of(experiment, source)
    result = simulation.run()
    run = drawn(simulation.experiment, source, simulation.constants)
    F = 1 if run.unit else dimension + 1
    L, d = ref.smoothness(F), run.x1.size
    run.C = min(ref.lipschitz(F), clip_norm or math.inf)
    if of_theorem:
        R, K = ref.minibatch_constants(run.C, 8, machines, d, D, L, min(epsilon, 1e6), 1e-5)
        K = 1 if math.isinf(epsilon) else min(K, 8)
    else:
        R, K = 9, 3
    # A 512th of epsilon and delta is left to what the draws of the noise add.
    delta, left = 1e-5 * 511 / 512, epsilon * 511 / 512
    run.sigma = simulation.constants.mechanism.sigma
    if math.isfinite(epsilon):
        account = partial(ReplacementExactMechanism.compute_epsilon, run.C, 8, K, R)
        assert account(run.sigma, delta) <= left
        assert account(run.sigma * 0.999, delta) > left
    assert (simulation.experiment.rounds, simulation.experiment.batch) == (R, K)
    N = machines if server == "trusted" else math.sqrt(machines)
    run.batch, noise = K * machines, run.sigma / K
    run.eta = ref.batch_learning_rate(run.C, L, D, R, run.batch, math.sqrt(d) * noise / N, 8 * machines)
    check(result, *ref.noisy_minibatch_sgd(run))
    np.testing.assert_array_equal(result.history.gradient_evaluations, machines * K * result.history.round)


@given(st.sampled_from([1.0, math.inf]), *settings, max_examples=15)
def test_dp_sgd_is_that_of_its_source(epsilon, machines, classes, dimension, D, clip_norm, normalize, seed):
    source = random_source(seed, 8 * machines, dimension, classes, np.float32)
    privacy = {"rho": math.inf} if math.isinf(epsilon) else {"epsilon": epsilon}
    experiment = Experiment(
        method="dp-sgd", server="trusted", machines=machines, rounds=12, batch=2 * machines, diameter=D,
        clip_norm=clip_norm, normalize=normalize, seed=seed, evaluations=3, **privacy,
    )  # fmt: skip
    simulation = simulation_of(experiment, source)
    result = simulation.run()
    run = drawn(simulation.experiment, source, simulation.constants)
    F = 1 if run.unit else dimension + 1
    run.C, run.batch = min(ref.lipschitz(F), clip_norm or math.inf), 2 * machines
    run.sigma = simulation.constants.mechanism.sigma
    if math.isfinite(epsilon):
        # No more noise than needed: a thousandth less would be too little.
        left, delta = epsilon * 511 / 512, 1e-5 * 511 / 512
        assert PoissonMechanism.compute_epsilon(run.C, 4, 1.0, 12, run.sigma, delta) <= left
        assert PoissonMechanism.compute_epsilon(run.C, 4, 1.0, 12, run.sigma * 0.999, delta) > left
        assert result.privacy.epsilon_exact <= epsilon
    noise = math.sqrt(run.x1.size) * run.sigma / run.batch
    run.eta = ref.batch_learning_rate(run.C, ref.smoothness(F), D, 12, run.batch, noise, math.inf)
    check(result, *ref.dp_sgd(run))
    assert result.history.gradient_evaluations[-1] == 24 * machines


def test_epsilon_and_delta_change_batches_and_noise():
    """With the same normals, the difference of two runs would contain no noise."""
    experiment = Experiment(method="dp-sgd", server="trusted", machines=2, rounds=20, batch=4, rho=0.5)
    root, others = root_key(1), ({"delta": 1e-6}, {"epsilon": 1.0}, {"batch": 5}, {"rho": 1.0})
    keys = {RunKeys.noise_key(root, experiment.replace(**other)) for other in ({}, *others)}
    assert len(keys) == 5
    assert RunKeys.noise_key(root, experiment.replace(evaluations=3)) in keys
