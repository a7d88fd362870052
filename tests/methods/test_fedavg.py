"""FedAvg against plain NumPy, its accounts, step sizes and refusals."""

import math
from dataclasses import replace

import numpy as np
import pytest
from helpers.local_steps import PlainRun
from helpers.property_tests import given
from helpers.simulations import make_schedule, make_task, simulation_of
from helpers.sources import ArraySource, random_source
from hypothesis import strategies as st

from mu2mpi.analysis.privacy_reports import claim_contradictions
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import lookup
from mu2mpi.data.source import Samples
from mu2mpi.execution.plan import resolve_plan

SAMPLES, ROUNDS = 7, 6
losses = st.sampled_from(["softmax", "logistic", "squared"])
optimizers = st.sampled_from([{}, {"momentum": 0.8}, {"server_optimizer": "adam"},
                              {"server_optimizer": "adam", "momentum": 0.5}])  # fmt: skip
seeds = st.integers(0, 2**31)


def source_for(loss, seed, machines):
    """Return a source of seven samples for each machine, with labels of the loss."""
    classes = 3 if loss == "softmax" else 2
    source = random_source(seed, SAMPLES * machines, 4, classes, np.float32)
    if loss != "squared":
        return source
    numbers = np.random.default_rng(seed).uniform(-1, 1, SAMPLES * machines)
    features = source._training.features
    test = Samples(source._test.features, np.ones(30))
    numeric = ArraySource(Samples(features, numbers), test, classes, 1.0)
    numeric.label_range = (-1.0, 1.0)
    return numeric


def assert_as_in_plain_numpy(experiment, source):
    simulation = simulation_of(experiment, source)
    plain, result = PlainRun(simulation, source), simulation.run()
    assert simulation.constants.mechanism.clip_norm == pytest.approx(plain.C)
    models = plain.models()
    for found, expected in ((result.x, plain.output(models)), (result.w, models[-1])):
        assert np.linalg.norm(found - expected) < 1e-6 * max(np.linalg.norm(expected), 1e-6)
    assert claim_contradictions(result) == []
    return result, plain


@given(
    losses, st.sampled_from([None, 3, 5]), optimizers, st.sampled_from([1, 2, 4]), st.integers(1, 3),
    st.sampled_from([1.0, 1e6, math.inf]), st.sampled_from([0.3, 1.0]), st.sampled_from([None, 0.5]),
    st.sampled_from([0.5, 5.0]), st.sampled_from([None, 0.4]), seeds, max_examples=25,
)  # fmt: skip
def test_noise_in_local_steps_is_that_of_plain_numpy(
    loss, batch, optimizer, steps, machines, rho, clip, l2, D, tail, seed
):
    source = source_for(loss, seed, machines)
    experiment = Experiment(
        method="fedavg", server="untrusted", loss=loss, machines=machines, rounds=ROUNDS, batch=batch,
        local_steps=steps, rho=rho, clip_norm=clip, l2=l2, diameter=D, tail=tail, eta_scale=0.7, seed=seed,
        evaluations=ROUNDS, **optimizer,
    )  # fmt: skip
    result, plain = assert_as_in_plain_numpy(experiment, source)
    t, per_round = result.history.round, steps * plain.K
    np.testing.assert_array_equal(result.history.gradient_evaluations, machines * per_round * t)
    spent = np.ceil(t * per_round / SAMPLES) / math.ceil(ROUNDS * per_round / SAMPLES)
    np.testing.assert_allclose(result.history.rho_spent, rho * np.sqrt(spent), rtol=1e-12)


@pytest.mark.parametrize("server", ["trusted", "aggregated"])
@given(
    losses, st.sampled_from([None, 3]), optimizers, st.sampled_from([1, 3]), st.sampled_from([(3, 1), (4, None)]),
    st.sampled_from([1.0, math.inf]), st.sampled_from([1e-3, 1.0, 2.5]), st.sampled_from([None, 0.5]), seeds,
    max_examples=12,
)  # fmt: skip
def test_sums_of_whole_machines_are_those_of_plain_numpy(
    server, loss, batch, optimizer, steps, sizes, rho, clip, l2, seed
):
    machines, participants = sizes
    source = source_for(loss, seed, machines)
    experiment = Experiment(
        method="fedavg", unit="machine", server=server, loss=loss, machines=machines, rounds=ROUNDS,
        batch=batch, local_steps=steps, participants=participants, rho=rho, clip_norm=clip, l2=l2,
        diameter=5.0, eta_scale=0.7, seed=seed, evaluations=ROUNDS, **optimizer,
    )  # fmt: skip
    result, plain = assert_as_in_plain_numpy(experiment, source)
    assert result.experiment.participants == (participants or machines)
    assert result.privacy.privacy_unit == "one machine with all its samples"
    expected = (participants or machines) * steps * plain.K * result.history.round
    np.testing.assert_allclose(result.history.gradient_evaluations, expected, rtol=1e-12)


@pytest.mark.parametrize("unit", ["sample", "machine"])
def test_without_a_clipping_norm_it_is_the_bound_on_a_message(unit):
    server, source = "untrusted" if unit == "sample" else "trusted", source_for("softmax", 1, 3)
    experiment = Experiment(
        method="fedavg", unit=unit, server=server, machines=3, rounds=3, local_steps=4, rho=math.inf,
        eta_scale=1.0, diameter=5.0, seed=1,
    )  # fmt: skip
    _, plain = assert_as_in_plain_numpy(experiment, source)
    assert plain.C == pytest.approx(math.sqrt(10) * (4 if unit == "machine" else 1))
