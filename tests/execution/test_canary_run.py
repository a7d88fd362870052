"""Canaries of real runs: scores as claimed, half of the noise refuted, and nothing of them released."""

import os
import stat
from pathlib import Path

import h5py
import numpy as np
import pytest
from helpers.interrupted_runs import StopAt
from helpers.sources import random_source

from mu2mpi.audit.one_run import audit_scores
from mu2mpi.cli import main
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError, Interrupted
from mu2mpi.core.parallel import Communicator
from mu2mpi.execution.job import run
from mu2mpi.execution.plan import resolve_plan
from mu2mpi.execution.resume import check_checkpoint_arrays
from mu2mpi.execution.simulation import Simulation
from mu2mpi.privacy.noise.noise_stream import IndependentNoiseSource, add_noise
from mu2mpi.results.canary_scores import read_canary_scores, run_digest
from mu2mpi.results.checkpoint import read_checkpoint, write_checkpoint
from mu2mpi.results.reader import read_result
from mu2mpi.results.records import canary_scores_path

SERVERS = ("untrusted", "trusted", "aggregated")
SOURCE = random_source(1, 100, 249, 4)  # d = 1,000
CANARIES = 800
RELATIONS = ["replace", "zero-out"]


def experiment_of(**settings):
    return Experiment(**{"machines": 4, "rounds": 20, "seed": 3, "canaries": CANARIES, **settings})


def simulation(experiment, state=None):
    return Simulation(resolve_plan(experiment, SOURCE, 1), Communicator(), state)


def scores_of(run, checkpoint_policy=None):
    result = run.run(checkpoint_policy=checkpoint_policy)
    return run.canaries.finished_scores(run.gather_canary_scores()), result


def assert_as_claimed(scores):
    """White unit noise around the means that the claim states, with five standard errors."""
    m = len(scores.score)
    z = scores.score
    rest = z - np.where(scores.included, 0.5, -0.5) * scores.separation
    assert abs(rest.mean()) < 5 / np.sqrt(m)
    assert abs(rest.std() - 1) < 5 / np.sqrt(2 * m)
    assert abs(np.corrcoef(rest, scores.included)[0, 1]) < 5 / np.sqrt(m)
    assert abs(scores.included.mean() - 0.5) < 2.5 / np.sqrt(m)


@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("rho", [1.0, 4.0])
def test_scores_reach_the_claim(server, rho, neighbours):
    """All of it but the last round of a trusted server, which is not released; half of mu by the audit."""
    scores, result = scores_of(simulation(experiment_of(server=server, rho=rho, neighbours=neighbours)))
    share = np.sqrt(19 / 20) if server == "trusted" else 1.0
    assert scores.separation == pytest.approx(share * result.privacy.guarantee.rho, rel=1e-6)
    assert_as_claimed(scores)
    bounds = audit_scores(scores)
    assert rho / 2 <= bounds.independent_mu <= rho
    assert bounds.mu <= rho


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "dp-gd", "server": "trusted"},
        {"method": "dp-gd", "server": "aggregated", "colluders": 2},
        {"method": "mu2-sgd", "preset": "practical"},
        {"estimator": "gradient"},
        {"estimator": "gradient", "server": "trusted"},
        {"method": "accelerated-srgd"},
        {"method": "ada-ssp", "server": "trusted"},
        {"machines": 1},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())),
)
def test_methods_reach_the_claim(settings):
    """Where a sample affects all sums, and where it affects one."""
    scores, result = scores_of(simulation(experiment_of(**settings)))
    released = 19 if settings.get("server") == "trusted" else 20
    affected = result.privacy.mechanism.affected_sums
    share = np.sqrt(released / 20) if affected == 20 else 1 / np.sqrt(affected)
    assert scores.separation == pytest.approx(share * result.privacy.guarantee.rho, rel=1e-6)
    assert_as_claimed(scores)


@pytest.mark.parametrize("server", SERVERS)
def test_messages_are_those_without_canaries_plus_increments(server):
    """The noise is the same, and each canary adds its increment of the clipping norm to one coordinate."""
    run = simulation(experiment_of(server=server))
    noisy = run.server if server == "trusted" else run.machines
    plain = simulation(run.experiment.replace(canaries=None))
    reference = plain.server if server == "trusted" else plain.machines
    message = np.zeros_like(run.machines.flat_message_sum)
    message[:5] = 7, -3, 2, 0, 1
    with_canaries, without = np.empty_like(message), np.empty_like(message)
    key = run.run_keys.noise
    plain_source = reference.noise_source
    plain_source = type(plain_source)(key, plain_source.streams, plain_source.std_units)
    for t in (1, 2, 7):
        noisy.noise_source(with_canaries, message, t)
        plain_source(without, message, t)
        increments = (with_canaries - without)[run.canaries._coordinates]
        mechanism = run.constants.mechanism
        expected = np.where(run.canaries._included, 1, -1) * np.floor(
            mechanism.clip_norm / mechanism.grid_spacing
        )
        np.testing.assert_array_equal(increments, expected)
        assert np.count_nonzero(with_canaries - without) == CANARIES
        assert np.abs(increments).max() * mechanism.grid_spacing <= mechanism.clip_norm


@pytest.mark.parametrize("server", SERVERS)
def test_half_of_the_noise_is_refuted_in_19_of_20_runs(server, monkeypatch):
    def half(self, noised, message, t):
        add_noise(noised, message, self.key, *self.streams, t, self.std_units(t) / 2)

    monkeypatch.setattr(IndependentNoiseSource, "__call__", half)
    refuted = 0
    for seed in range(20):
        scores, result = scores_of(simulation(experiment_of(server=server, seed=seed)))
        refuted += audit_scores(scores).independent_mu > result.privacy.guarantee.rho
    assert refuted >= 19


def test_claims_of_correct_runs_are_refuted_in_at_most_one_of_twenty():
    """Of 60 runs; 9 or more would have a probability below 0.3 %."""
    refuted = 0
    for seed in range(60):
        settings = {"server": SERVERS[seed % 3], "seed": seed, "canaries": 100}
        scores, result = scores_of(simulation(experiment_of(**settings)))
        bounds, rho = audit_scores(scores), result.privacy.guarantee.rho
        refuted += max(bounds) > rho
    assert refuted <= 8


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("estimator", ["corrected-momentum", "gradient"])
def test_a_resumed_run_has_the_scores_of_an_unbroken_one(server, estimator, tmp_path):
    experiment = experiment_of(server=server, estimator=estimator, seed=5)
    unbroken, result = scores_of(simulation(experiment))
    for t in (1, 2, 11, 20):
        policy = StopAt(t)
        with pytest.raises(Interrupted):
            simulation(experiment).run(checkpoint_policy=policy)
        write_checkpoint(policy.state, tmp_path / "a")
        state = read_checkpoint(tmp_path / "a")
        check_checkpoint_arrays(state, resolve_plan(experiment, SOURCE, 1), tmp_path / "b")
        resumed, resumed_result = scores_of(simulation(state.experiment, state))
        np.testing.assert_array_equal(resumed.score, unbroken.score)
        np.testing.assert_array_equal(resumed.included, unbroken.included)
        assert run_digest(resumed_result) == run_digest(result)


def test_coins_are_secret_and_new_in_each_run_without_a_seed():
    experiment = experiment_of(seed=None)
    first, second = (scores_of(simulation(experiment))[0].included for _ in range(2))
    assert 0.4 < np.mean(first == second) < 0.6


def test_scores_are_in_a_secret_file_alone(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    old = os.umask(0)
    try:
        arguments = ["run", "--machines", "2", "--rounds", "6", "--seed", "4", "--output"]
        assert main([*arguments, "a.h5", "--canaries", "300"]) == 0
        assert main([*arguments, "plain.h5"]) == 0
    finally:
        os.umask(old)
    path = canary_scores_path(tmp_path / "a.h5")
    assert sorted(os.listdir(tmp_path)) == ["a.canaries.h5", "a.h5", "plain.h5"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    names, attributes = {}, {}
    for name in ("a.h5", "plain.h5"):
        with h5py.File(name) as file:
            names[name] = []
            file.visit(names[name].append)
            attributes[name] = file.attrs["experiment"].decode()
    assert names["a.h5"] == names["plain.h5"]
    with_canaries, without = (set(attributes[name].splitlines()) for name in ("a.h5", "plain.h5"))
    assert with_canaries - without == {"canaries = 300"}
    assert len(read_canary_scores(tmp_path / "a.h5", read_result("a.h5")).score) == 300


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"canaries": 0}, "canaries = 0"),
        ({"method": "dp-sgd"}, "--mechanism poisson"),
        ({"server": "shuffled"}, "--mechanism binomial"),
        ({"noise_correlation": 0.5}, "--mechanism correlated"),
        ({"noise": "aggregate"}, "--noise"),
        ({"rho": float("inf")}, "--rho inf"),
        ({"objective": "samples"}, "--objective"),
        ({"canaries": 1001}, "1,001 canaries, 1,000 parameters"),
        ({"rounds": 1, "server": "trusted"}, "1 rounds"),
    ],
)
def test_what_canaries_do_not_suit_is_refused(settings, text):
    with pytest.raises(InputError) as error:
        simulation(experiment_of(**settings))
    assert text in str(error.value)
    assert "--canaries" in str(error.value) or "canaries = 0" in str(error.value)


def test_a_run_without_an_output_is_refused():
    with pytest.raises(InputError, match="needs an output"):
        run({"machines": 2, "rounds": 4, "canaries": 10})
