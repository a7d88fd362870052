"""The package against `algorithm_1` and `algorithm_2` of `helpers.paper_algorithms`."""

import numpy as np
import pytest
from helpers import reference as ref
from helpers.noise import drawn_noise
from helpers.paper_algorithms import algorithm_1, algorithm_2
from helpers.property_tests import given
from helpers.simulations import simulation_of
from helpers.sources import random_source
from hypothesis import strategies as st

from mu2mpi.config.experiment import Experiment
from mu2mpi.data.partition import iid_rows
from mu2mpi.execution.plan import RunKeys
from mu2mpi.privacy.noise.noise_stream import (
    MACHINE_STREAM,
    SERVER_STREAM,
    derive_key,
    key_to_uint32,
    root_key,
)


@pytest.mark.parametrize("server", ["untrusted", "trusted"])
@given(
    st.tuples(st.integers(1, 5), st.integers(2, 20), st.integers(2, 6), st.integers(1, 20)),
    st.sampled_from([1e9, 1e10, np.inf]),
    st.sampled_from([0.01, 0.1, 5.0]),
    st.integers(0, 2**31),
    max_examples=25,
)
def test_output_is_that_of_the_box(server, shape, rho, diameter, seed):
    """To 1e-9, as the grid is fine with little or no noise."""
    M, T, classes, dimension = shape
    source = random_source(seed, M * T + 3, dimension, classes, np.float64)
    experiment = Experiment(
        server=server, machines=M, rounds=T, rho=rho, diameter=diameter, seed=seed, evaluations=1
    )
    simulation = simulation_of(experiment, source)
    constants, x = simulation.constants, simulation.run().x
    root = root_key(seed)
    key, sigma = key_to_uint32(RunKeys.noise_key(root, simulation.experiment)), constants.mechanism.sigma
    rows = iid_rows(source.training_samples, M, T, derive_key(root, "dealing"), range(M))
    drawn = source.read_training(rows.ravel())
    z = np.column_stack([drawn.features * source.feature_scale, np.ones(M * T)]).reshape(T, M, -1)
    labels = drawn.labels.reshape(T, M)

    def draw(who, number, t):
        return sigma * drawn_noise(constants, key, who, number, t) if sigma else 0.0

    def noise(t, i):
        return draw(MACHINE_STREAM, i, t)

    def noise_of_average(t):
        return draw(SERVER_STREAM, 0, t) / M

    box, drawn_by = (algorithm_1, noise) if server == "untrusted" else (algorithm_2, noise_of_average)
    expected = box(
        [[(z[t, i], int(labels[t, i])) for i in range(M)] for t in range(T)],
        lambda x, sample: ref.gradient(x, *sample),
        drawn_by,
        lambda w: w * min(1.0, diameter / 2 / max(np.linalg.norm(w), 1e-300)),
        constants.eta,
        np.zeros((classes, dimension + 1)),
    )
    assert np.linalg.norm(x - expected) < 1e-9 * max(np.linalg.norm(expected), diameter)
