"""Runs against Algorithms 1 and 2 in float64 NumPy with dense gradients, the same grid and noise."""

import numpy as np
import pytest
from helpers import reference as ref
from helpers.noise import drawn_noise
from helpers.property_tests import given
from helpers.simulations import simulation_of
from helpers.slow import slow
from helpers.sources import random_source
from hypothesis import strategies as st

from mu2mpi.analysis.privacy_reports import claim_contradictions
from mu2mpi.config.experiment import Experiment
from mu2mpi.data.partition import iid_rows
from mu2mpi.execution.plan import RunKeys
from mu2mpi.privacy.noise.noise_stream import (
    AGGREGATE_STREAM,
    MACHINE_STREAM,
    SERVER_STREAM,
    derive_key,
    key_to_uint32,
    root_key,
)

shapes = st.tuples(
    st.integers(1, 6),  # machines
    st.integers(2, 25),  # rounds
    st.integers(2, 7),  # classes
    st.integers(1, 40),  # features
)


def dealt(experiment, source, constants):
    """Return a run's samples, shapes (T, M, F - 1) and (T, M), and the noise of machines and server."""
    M, T = experiment.machines, experiment.rounds
    root = root_key(experiment.seed)
    rows = iid_rows(source.training_samples, M, T, derive_key(root, "dealing"), range(M))
    samples = source.read_training(rows.ravel())
    features = samples.features.reshape(T, M, -1).astype(float) * source.feature_scale
    shape = (source.classes, source.dimension + 1)
    key = key_to_uint32(RunKeys.noise_key(root, experiment))

    def by_machine(machine, t):
        if experiment.noise == "aggregate":
            # The first machine adds the noise of all.
            return drawn_noise(constants, key, AGGREGATE_STREAM, 0, t) if machine == 0 else 0.0
        return drawn_noise(constants, key, MACHINE_STREAM, machine, t)

    def by_server(t):
        return drawn_noise(constants, key, SERVER_STREAM, 0, t)

    return features, samples.labels.reshape(T, M), np.zeros(shape), by_machine, by_server


def reference_run(experiment, source, constants, record):
    """Return x_T and w_T of the reference on the same samples, and record its rounds."""
    features, labels, x1, by_machine, by_server = dealt(experiment, source, constants)
    algorithm, noise = {
        "untrusted": (ref.untrusted_server, by_machine),
        "trusted": (ref.trusted_server, by_server),
    }[experiment.server]
    return algorithm(
        features, labels, x1, experiment.diameter, experiment.rho, noise, experiment.clip_norm, record,
        experiment.normalize == "unit", experiment.eta_scale, constants.mechanism.grid_spacing,
    )  # fmt: skip


def assert_same_point(found, expected, constants):
    """To a millionth, or as near as three numbers leave it that were rounded to another multiple of the grid.

    One that lies in the middle of two multiples may go to either, and then is in all messages that follow.
    """
    steps = [
        constants.step_size(t) / max(1, constants.batching.batch_size(t)) for t in range(1, constants.rounds)
    ]
    rounded = 3 * constants.mechanism.grid_spacing * sum(steps) / constants.problem.machines
    # Samples of unit norm with a single feature may cancel to nothing.
    assert np.linalg.norm(found - expected) < 1e-6 * max(np.linalg.norm(expected), 1e-6) + rounded


@pytest.mark.parametrize("server", ["untrusted", "trusted", *slow("aggregate")])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
@given(
    shapes,
    st.sampled_from([0.5, 4.0, 1000.0, 1e9, np.inf]),
    st.sampled_from([0.01, 0.1, 5.0]),
    st.sampled_from([None, 0.3, 1.0]),
    st.sampled_from(["none", "unit"]),
    st.sampled_from([None, None, 0.3, 20.0]),
    st.integers(0, 2**31),
    max_examples=25,
)
def test_run_equals_the_algorithm_box(
    server, dtype, shape, rho, diameter, clip_norm, normalize, eta_scale, seed
):
    machines, rounds, classes, dimension = shape
    source = random_source(seed, machines * rounds + 3, dimension, classes, dtype)
    experiment = Experiment(
        server="trusted" if server == "trusted" else "untrusted",
        noise="aggregate" if server == "aggregate" else None, machines=machines, rounds=rounds, rho=rho,
        diameter=diameter, clip_norm=clip_norm, normalize=normalize, eta_scale=eta_scale, seed=seed,
        evaluations=rounds,
    )  # fmt: skip
    simulation = simulation_of(experiment, source)
    result = simulation.run()
    record: list[ref.Round] = []
    x, w = reference_run(experiment, source, simulation.constants, record)
    assert_same_point(result.x, x, simulation.constants)
    assert_same_point(result.w, w, simulation.constants)
    test = source.read_test(np.arange(source.test_samples))
    scaled = test.features.astype(float) * source.feature_scale
    unit = normalize == "unit"
    losses = [ref.mean_loss(record[t - 1].x, scaled, test.labels, unit) for t in result.history.round]
    np.testing.assert_allclose(result.history.test_loss, losses, rtol=1e-6)
    # To what leaves room for rounding.
    longest, bound = result.diagnostics.largest_increment_norm, simulation.constants.reduced_clip_norm
    assert (result.diagnostics.clipped_share > 0) == (longest > bound)
    assert clip_norm is not None or longest < bound


METHODS = {
    ("gradient", "iterate"): ref.parallel_sgd,
    ("gradient", "average"): ref.anytime_sgd,
    ("corrected-momentum", "iterate"): ref.storm,
}


@pytest.mark.parametrize("server", ["untrusted", "trusted"])
@pytest.mark.parametrize("pieces", METHODS, ids="-".join)
@given(
    shapes,
    st.sampled_from([0.5, 4.0, 1e9, np.inf]),
    st.sampled_from([0.01, 0.1, 5.0]),
    st.sampled_from([None, 0.3]),
    st.sampled_from(["none", "unit"]),
    st.integers(0, 2**31),
    max_examples=20,
)
def test_run_equals_the_method_of_its_source(
    server, pieces, shape, rho, diameter, clip_norm, normalize, seed
):
    machines, rounds, classes, dimension = shape
    source = random_source(seed, machines * rounds + 3, dimension, classes, np.float32)
    estimator, query_point = pieces
    if (estimator, query_point) == ("corrected-momentum", "iterate"):
        clip_norm = clip_norm or 2.0
    experiment = Experiment(
        estimator=estimator, query=query_point, server=server, machines=machines, rounds=rounds, rho=rho,
        diameter=diameter, clip_norm=clip_norm, normalize=normalize, seed=seed, evaluations=3,
    )  # fmt: skip
    simulation = simulation_of(experiment, source)
    constants, result = simulation.constants, simulation.run()
    features, labels, x1, by_machine, by_server = dealt(experiment, source, constants)

    def of_all(t):
        return sum(by_machine(i, t) for i in range(machines))

    noise = by_server if server == "trusted" else of_all
    unit, trusted, grid_spacing = normalize == "unit", server == "trusted", constants.mechanism.grid_spacing
    output, w = METHODS[pieces](
        ref.Setting(features, labels, x1, diameter, rho, trusted, noise, clip_norm, unit, grid_spacing)
    )
    assert_same_point(result.x, output, constants)
    assert_same_point(result.w, w, constants)
    test = source.read_test(np.arange(source.test_samples))
    assert result.history.test_loss[-1] == pytest.approx(
        ref.mean_loss(output, test.features, test.labels, unit)
    )
    per_sample = 1 if estimator == "gradient" else 2
    np.testing.assert_array_equal(
        result.history.gradient_evaluations, per_sample * machines * result.history.round
    )
    assert claim_contradictions(result) == []
