"""SCAFFOLD against plain NumPy, what control variates correct, and runs that are stopped and resumed."""

import dataclasses
import math

import numpy as np
import pytest
from helpers.assertions import assert_same
from helpers.interrupted_runs import found_checkpoint, simulated, stopped_state
from helpers.local_steps import PlainRun
from helpers.property_tests import given
from helpers.simulations import simulation_of
from helpers.sources import ArraySource, random_source
from hypothesis import strategies as st

from mu2mpi.analysis.privacy_reports import claim_contradictions
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import lookup
from mu2mpi.data.source import Samples
from mu2mpi.execution.plan import resolve_plan
from mu2mpi.execution.resume import check_checkpoint_arrays
from mu2mpi.results.checkpoint import write_checkpoint
from mu2mpi.results.records import checkpoint_path

SAMPLES, ROUNDS = 7, 6


@given(
    st.sampled_from(["softmax", "logistic"]), st.sampled_from([None, 3, 5]), st.sampled_from([None, 0.8]),
    st.sampled_from([1, 2, 4]), st.integers(1, 4), st.sampled_from([1.0, 1e6, math.inf]),
    st.sampled_from([0.3, 1.0]), st.sampled_from([None, 0.5]), st.sampled_from([None, 0.4]),
    st.integers(0, 2**31), max_examples=25,
)  # fmt: skip
def test_a_run_equals_the_algorithm_in_plain_numpy(
    loss, batch, momentum, steps, machines, rho, clip, l2, tail, seed
):
    source = random_source(seed, SAMPLES * machines, 4, 3 if loss == "softmax" else 2, np.float32)
    experiment = Experiment(
        method="scaffold", server="untrusted", loss=loss, machines=machines, rounds=ROUNDS, batch=batch,
        local_steps=steps, rho=rho, clip_norm=clip, l2=l2, diameter=5.0, tail=tail, eta_scale=0.7, seed=seed,
        momentum=momentum, evaluations=ROUNDS,
    )  # fmt: skip
    simulation = simulation_of(experiment, source)
    plain, result = PlainRun(simulation, source), simulation.run()
    models = plain.models()
    for found, expected in ((result.x, plain.output(models)), (result.w, models[-1])):
        assert np.linalg.norm(found - expected) < 1e-6 * max(np.linalg.norm(expected), 1e-6)
    assert claim_contradictions(result) == []
    t, per_round = result.history.round, steps * plain.K
    np.testing.assert_array_equal(result.history.gradient_evaluations, machines * per_round * t)
    spent = np.ceil(t * per_round / SAMPLES) / math.ceil(ROUNDS * per_round / SAMPLES)
    np.testing.assert_allclose(result.history.rho_spent, rho * np.sqrt(spent), rtol=1e-12)


@pytest.mark.parametrize("own", [{"local_steps": 1}, {"machines": 1, "local_steps": 4}])
def test_without_other_steps_or_machines_to_correct_for_it_is_fedavg(own):
    """One step moves machines by the mean gradient, and c = c_i on a machine alone."""
    settings = {"machines": 3, "rounds": 8, "rho": math.inf, "eta_scale": 0.5, "seed": 1, **own}
    found = [
        simulation_of(Experiment(method=method, **settings), random_source(1, 21, 4, 3)).run().w
        for method in ("fedavg", "scaffold")
    ]
    np.testing.assert_allclose(*found, rtol=1e-12, atol=1e-14)


def test_control_variates_correct_the_drift_of_unequal_machines():
    """Of machines with distant optima, FedAvg stops far from the common minimum, and SCAFFOLD at it."""
    rng = np.random.default_rng(1)
    features = np.concatenate([rng.uniform(0.2, 1.0, (20, 2)), rng.uniform(-1.0, 0.1, (20, 2))])
    labels = (rng.random(40) < np.repeat([0.8, 0.4], 20)).astype(np.int32)
    samples = Samples(features, labels)
    source = ArraySource(samples, samples, 2, 1.0)
    settings = {"loss": "logistic", "partition": "contiguous", "machines": 2, "rounds": 600, "rho": math.inf}
    settings |= {"local_steps": 20, "eta_scale": 1.0, "diameter": 40.0, "seed": 1, "evaluations": 1}
    z, norms = np.hstack([features, np.ones((40, 1))]), {}
    for method in ("fedavg", "scaffold"):
        w = simulation_of(Experiment(method=method, **settings), source).run().w[0]
        gradient = z.T @ (1 / (1 + np.exp(-z @ w)) - labels) / 40
        norms[method] = np.linalg.norm(gradient)
    assert norms["fedavg"] > 1e-2
    assert norms["scaffold"] < 1e-6


def test_iterates_reveal_messages_unless_momentum_hides_their_changes():
    method = lookup("methods", "scaffold")
    assert method.iterates_reveal_messages(method.options())
    assert not method.iterates_reveal_messages(method.options(momentum=0.5))
    assert method.state_names(method.options()) == ("control",)
    assert method.state_names(method.options(momentum=0.5)) == ("w_previous", "control")
    assert method.audit_settings(3, 6, method.options()) == (2, {"batch": 2})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"server": "trusted"}, "--method scaffold adds Gaussian noise in each local step"),
        ({"server": "aggregated"}, "--method scaffold adds Gaussian noise in each local step"),
        ({"noise": "aggregate"}, "--method scaffold adds Gaussian noise in each local step"),
        ({"mechanism": "correlated"}, "--method scaffold adds Gaussian noise in each local step"),
        ({"unit": "machine"}, "unit needs method = fedavg"),
        ({"participants": 2}, "participants needs method = fedavg"),
        ({"server_optimizer": "adam"}, "server_optimizer needs method = fedavg"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(settings, words):
    with pytest.raises(InputError) as caught:
        Experiment(**{"method": "scaffold", "server": "untrusted", "machines": 3, **settings})
    assert words in str(caught.value)


# ------------------------------------------------------------------------------------------- resuming

RESUMED = {"method": "scaffold", "machines": 4, "local_steps": 3, "rounds": 9, "seed": 9, "evaluations": 9}


@pytest.mark.parametrize("own", [{}, {"batch": 4, "momentum": 0.5, "l2": 0.1}])
def test_a_run_that_was_stopped_has_the_same_bits(own, tmp_path):
    """From before the first round, in which there are no control variates, and from any other."""
    source, path = random_source(1, 40, 6, 3), tmp_path / "a.h5"
    experiment = Experiment(**{**RESUMED, **own})
    for t in (1, 2, 5, 9):
        write_checkpoint(stopped_state(experiment, source, t), checkpoint_path(path))
        state = found_checkpoint(path, experiment)
        assert state.rounds_done == t - 1
        assert state.last_messages.shape == (4, 3, 7)
        assert state.last_messages.any() == (t > 1)
        check_checkpoint_arrays(state, resolve_plan(experiment, source, 1), path)
        assert_same(simulated(state.experiment, source, state), simulated(experiment, source))


@pytest.mark.parametrize(
    "change",
    [
        lambda messages: messages[:-1],
        lambda messages: messages[:, :-1],
        lambda messages: messages[:0],
        lambda messages: messages.astype(float),
    ],
)
def test_messages_that_a_run_cannot_have_sent_are_refused(change, tmp_path):
    source, experiment = random_source(1, 40, 6, 3), Experiment(**RESUMED)
    state = stopped_state(experiment, source, 5)
    changed = dataclasses.replace(state, last_messages=change(state.last_messages))
    with pytest.raises(InputError, match="last_messages"):
        check_checkpoint_arrays(changed, resolve_plan(experiment, source, 1), tmp_path / "a.h5")
