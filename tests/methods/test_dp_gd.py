"""DP-GD with full batches or passes against plain NumPy, sample reuse, and its bound."""

import math

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
from mu2mpi.core.errors import InputError
from mu2mpi.data.partition import iid_rows
from mu2mpi.execution.plan import RunKeys, resolve_plan
from mu2mpi.federation.batching import CyclicBatches
from mu2mpi.privacy.noise.noise_stream import (
    MACHINE_STREAM,
    SERVER_STREAM,
    derive_key,
    key_to_uint32,
    root_key,
)


def by_hand(simulation, source, K, momentum, tail):
    """Return output and last iterate of the same run in plain NumPy, and V."""
    experiment, constants = simulation.experiment, simulation.constants
    M, n, T, D = (
        constants.problem.machines,
        constants.batching.samples_per_machine,
        constants.rounds,
        2 * constants.problem.radius,
    )
    root = root_key(experiment.seed)
    rows = iid_rows(source.training_samples, M, n, derive_key(root, "dealing"), range(M)).T
    stored, key = source.read_training(rows.ravel()), key_to_uint32(RunKeys.noise_key(root, experiment))
    z = ref.samples(stored.features.astype(float) * source.feature_scale, experiment.normalize == "unit")
    z, labels = z.reshape(M, n, -1), stored.labels.reshape(M, n)
    who = (
        [(SERVER_STREAM, 0)]
        if constants.problem.server == "trusted"
        else [(MACHINE_STREAM, i) for i in range(M)]
    )
    F = 1 if experiment.normalize == "unit" else z.shape[2]
    L, C = ref.smoothness(F), min(ref.lipschitz(F), experiment.clip_norm or math.inf)
    sigma = 2 * C * math.sqrt(math.ceil(T * K / n)) / experiment.rho
    N = M if constants.problem.server == "trusted" else math.sqrt(M)
    d = constants.problem.classes * z.shape[2]
    V = d * (sigma / (K * N)) ** 2 + C**2 * (1 / K - 1 / n) / M + 2 * C**2 * T / (n * M)
    eta = (1 - momentum) / (L + 2 * math.sqrt(V * T) / D)
    w, grid_spacing = (
        [np.zeros((constants.problem.classes, z.shape[2]))] * 2,
        constants.mechanism.grid_spacing,
    )
    for t in range(1, T):
        places = [p % n for p in range((t - 1) * K, t * K)]
        both = [(z[i, p], int(labels[i, p])) for i in range(M) for p in places]
        total = sum(ref.kept(ref.gradient(w[-1], *one), C, grid_spacing) for one in both)
        if sigma > 0:
            total = total + sigma * sum(drawn_noise(constants, key, *one, t) for one in who)
        step = momentum * (w[-1] - w[-2]) - eta * total / (K * M)
        w.append(ref.project(w[-1] + step, np.zeros(w[0].shape), D / 2))
    counted = w[2:] if tail is None else w[1:][-math.ceil(tail * T) :]
    return np.mean(counted, axis=0), w[-1], V


@pytest.mark.parametrize("server", ["untrusted", "trusted"])
@given(
    st.sampled_from([None, 3, 5]), st.sampled_from([None, 0.8]), st.sampled_from([None, 0.4]),
    st.integers(1, 3),
    st.sampled_from([1.0, math.inf]), st.sampled_from([None, 0.3]), st.sampled_from(["none", "unit"]),
    st.sampled_from([0.1, 5.0]), st.integers(0, 2**31), max_examples=12,
)  # fmt: skip
def test_runs_are_those_of_plain_numpy(
    server, batch, momentum, tail, machines, rho, clip, normalize, D, seed
):
    source = random_source(seed, 7 * machines, 4, 3, np.float32)
    experiment = Experiment(
        method="dp-gd", server=server, machines=machines, rounds=9, batch=batch, momentum=momentum, tail=tail,
        rho=rho, clip_norm=clip, normalize=normalize, diameter=D, seed=seed, evaluations=9,
    )  # fmt: skip
    simulation = simulation_of(experiment, source)
    result, K = simulation.run(), batch or 7
    output, w, _ = by_hand(simulation, source, K, momentum or 0.0, tail)
    assert np.linalg.norm(result.x - output) < 1e-6 * max(np.linalg.norm(output), 1e-6)
    assert np.linalg.norm(result.w - w) < 1e-6 * max(np.linalg.norm(w), 1e-6)
    assert claim_contradictions(result) == []
    t, touched = result.history.round, math.ceil(9 * K / 7)
    np.testing.assert_array_equal(result.history.gradient_evaluations, machines * K * t)
    spent = rho * np.sqrt(np.ceil(t * K / 7) / touched)
    np.testing.assert_allclose(result.history.rho_spent, spent, rtol=1e-12)


@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 30), max_examples=50)
def test_samples_are_in_no_more_messages_than_stated(n, K, T):
    K = min(n, K)
    batching = CyclicBatches(n, 1, K)
    counts = np.zeros(n, int)
    for t in range(1, T + 1):
        taken = batching.batches(bytes(32), np.array([3, 4]), np.array([t, t]))
        of_machines = taken.indices.reshape(2, K)
        np.testing.assert_array_equal(*of_machines)
        assert len(set(of_machines[0])) == K
        counts[of_machines[0]] += 1
        assert batching.max_uses_per_sample(t) == counts.max() == counts[0]
        assert batching.distinct_samples_until(t) == np.count_nonzero(counts)
        assert batching.processed_samples_until(t) == counts.sum()


def test_bound_applies_to_plain_full_batch_steps():
    source = random_source(1, 60, 4, 3)
    common = {"method": "dp-gd", "machines": 3, "rho": 1.0}
    assert resolve_plan(Experiment(**common), source, 1).constants.excess_loss_bound > 0
    for other in ({"batch": 7}, {"momentum": 0.5}, {"tail": 0.5}, {"clip_norm": 0.1}, {"eta_scale": 1.0}):
        assert math.isnan(resolve_plan(Experiment(**common, **other), source, 1).constants.excess_loss_bound)
    with pytest.raises(InputError, match=r"--batch must be at most 20 \(samples of a machine\), got 21"):
        resolve_plan(Experiment(**common, batch=21), source, 1)
