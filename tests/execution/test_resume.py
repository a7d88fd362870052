"""Runs that go on from a checkpoint: the same bits and messages as those of an unbroken run."""

import dataclasses
import re

import h5py
import numpy as np
import pytest
from helpers.assertions import assert_same
from helpers.interrupted_runs import BEGINS, found_checkpoint, job, simulated, stopped_state
from helpers.sources import random_source

from mu2mpi.cli import main
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError, Interrupted
from mu2mpi.core.parallel import Communicator
from mu2mpi.core.registry import known_names
from mu2mpi.execution import environment
from mu2mpi.execution.job import RunContext
from mu2mpi.execution.plan import resolve_plan
from mu2mpi.execution.resume import check_checkpoint_arrays
from mu2mpi.privacy.noise import noise_stream
from mu2mpi.results.checkpoint import read_checkpoint, write_checkpoint
from mu2mpi.results.records import checkpoint_path

OTHERS = [("gradient", "iterate"), ("gradient", "average"), ("corrected-momentum", "iterate")]
CORRELATED = [{"method": "anytime-dp-mf", "diameter": 0.01}, {"noise_correlation": 0.5, "l2": 0.1}]
CASES = [
    *({"server": server} for server in known_names("servers")),
    *({"server": "trusted", "estimator": e, "query": q, "clip_norm": 0.9} for e, q in OTHERS),
    *({"server": s, "rounds": 20, **c} for s in ("untrusted", "trusted") for c in CORRELATED),
    {"server": "aggregated", "rounds": 20, **CORRELATED[0]},
    {"method": "objective-perturbation", "server": "trusted", "epsilon": 2.0, "rounds": 24},
    {"method": "noisy-minibatch-sgd", "epsilon": 2.0, "rounds": 24},
    {"method": "dp-sgd", "server": "trusted", "epsilon": 2.0, "rounds": 24},
    {"method": "mu2-sgd", "preset": "practical"},
    *(
        {"method": method, "server": server, "rounds": 10}
        for method in ("ada-ssp", "dp-newton")
        for server in ("trusted", "aggregated")
    ),
]


@pytest.mark.parametrize("settings", CASES, ids=lambda settings: "-".join(map(str, settings.values())))
def test_going_on_gives_the_bits_of_an_unbroken_run(settings, tmp_path):
    """From any round, of any method, and without a seed to those of another who goes on."""
    source, path = random_source(1, 200, 6, 3), tmp_path / "a.h5"
    experiment = Experiment(**{"machines": 4, "seed": 9, **settings})
    unbroken = simulated(experiment, source)
    for t in (1, 2, 9, unbroken.experiment.rounds):
        write_checkpoint(stopped_state(experiment, source, t), checkpoint_path(path))
        # What is left open was settled when the run began.
        state = found_checkpoint(path, experiment.replace(machines=None))
        assert state.rounds_done == t - 1
        check_checkpoint_arrays(state, resolve_plan(experiment, source, 1), path)
        resumed = simulated(state.experiment, source, state)
        assert_same(resumed, unbroken)
        assert np.all(np.diff(resumed.history.elapsed_seconds) > 0)
    unseeded = experiment.replace(seed=None)
    state = stopped_state(unseeded, source, 9)
    assert_same(*(simulated(unseeded, source, state) for _ in range(2)))


def test_going_on_in_the_middle_of_a_chunk_of_samples(monkeypatch):
    source = random_source(1, 100, 6, 3)
    experiment = Experiment(machines=4, seed=9)
    unbroken = simulated(experiment, source)
    for name in ("MAX_IN_MEMORY_SAMPLE_BYTES", "SAMPLE_CHUNK_BYTES"):
        monkeypatch.setattr(f"mu2mpi.data.source.{name}", 3 * 4 * source.sample_bytes)
    state = stopped_state(experiment, source, 9)
    assert_same(simulated(experiment, source, state), unbroken)


@pytest.mark.parametrize("server", ["untrusted", "trusted"])
def test_a_restart_sends_the_very_same_messages(server, tmp_path, monkeypatch):
    """A run without a seed, so that its key lives in the checkpoint alone: no second noisy copy leaves."""
    source = random_source(1, 100, 6, 3)
    experiment = Experiment(server=server, machines=4)
    sent: dict[int, list[bytes]] = {}
    add_noise = noise_stream.add_noise

    def recorded(noised, message, key, who, first, count, t, scale):
        add_noise(noised, message, key, who, first, count, t, scale)
        # Of one unit of the grid it is what has the kernel compiled.
        if scale > 1.0:
            sent.setdefault(t, []).append(noised.tobytes())

    monkeypatch.setattr(noise_stream, "add_noise", recorded)
    # Of rounds in one call, Python sees no message; they have the same bits (test_round_loop.py).
    monkeypatch.setattr("mu2mpi.execution.simulation.make_round_loop", lambda *_: None)
    write_checkpoint(stopped_state(experiment, source, 10), tmp_path / "checkpoint")
    for _ in range(2):
        simulated(experiment, source, read_checkpoint(tmp_path / "checkpoint"))
    last = 25 if server == "untrusted" else 24  # the server's last message would move nothing
    assert sorted(sent) == list(range(1, last + 1))
    assert all(len(sent[t]) == (1 if t < 10 else 2) for t in sent)
    assert all(len(set(messages)) == 1 for messages in sent.values())


@pytest.mark.parametrize("seed", [3, None])
def test_a_run_goes_on_from_the_checkpoint_before_one_that_cannot_be_read(seed, tmp_path, capsys):
    """To the bits of going on from the last: also without a seed, whose key both have."""
    source, path = random_source(1, 100, 6, 3), tmp_path / "a.h5"
    experiment, place = Experiment(machines=4, seed=seed), checkpoint_path(path)
    asked = iter([False] * 2)
    with pytest.raises(Interrupted):
        RunContext(Communicator(), lambda: next(asked, True), False, 1e-9).run_to_file(
            experiment, source, path
        )
    kept = {name: name.read_bytes() for name in tmp_path.iterdir()}
    assert len(kept) == 2
    expected = job().run_to_file(experiment, source, path)
    path.unlink()
    for name, content in kept.items():
        name.write_bytes(content if name != place else content[:-1])
    assert_same(job().run_to_file(experiment, source, path), expected)
    assert str(place) in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [path]


@pytest.fixture
def state():
    return stopped_state(Experiment(machines=4, seed=1), random_source(1, 100, 6, 3), 10)


def test_show_tells_how_far_a_run_is_and_no_key(state, tmp_path, capsys):
    path = tmp_path / "a.h5"
    write_checkpoint(state, checkpoint_path(path))
    with h5py.File(checkpoint_path(path)) as file:
        assert "key" not in file.attrs
    assert main(["show", str(path)]) == 0
    out = capsys.readouterr().out
    assert "9 of 25 rounds" in out
    assert f"{state.history.test_loss[-1]:.4f}" in out
    secret = stopped_state(Experiment(machines=4), random_source(1, 100, 6, 3), 1)
    write_checkpoint(secret, checkpoint_path(path))
    assert main(["show", str(checkpoint_path(path))]) == 0
    assert secret.root_key.hex()[:8] not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("other", "name"),
    [
        ({"seed": 2}, "seed"),
        ({"machines": 5}, "machines"),
        ({"epsilon": 2.0}, "epsilon"),
        ({"method": "mu2-sgd", "preset": "practical"}, "preset"),
    ],
)
def test_a_checkpoint_of_another_experiment_is_refused(state, tmp_path, other, name):
    path = checkpoint_path(tmp_path / "a.h5")
    write_checkpoint(state, path)
    content = path.read_bytes()
    with pytest.raises(InputError, match=f"{name} is "):
        found_checkpoint(tmp_path / "a.h5", Experiment(**{"machines": 4, "seed": 1, **other}))
    assert path.read_bytes() == content
    # Nor is a preset, or an epsilon that gave the rho, anything that was left open.
    experiment = Experiment(**{"machines": 4, "seed": 1, **other})
    write_checkpoint(stopped_state(experiment, random_source(1, 100, 6, 3), 10), path)
    with pytest.raises(InputError, match=f"{name} is "):
        found_checkpoint(tmp_path / "a.h5", Experiment(machines=4, seed=1, rho=experiment.rho))


@pytest.mark.parametrize("word", ["features", "values", "numpy", "numba", "llvmlite", "ranks"])
def test_another_processor_or_package_costs_privacy_or_bits(state, word, tmp_path, capsys):
    """The same noise on slightly other messages would give their difference away."""
    here = environment.numeric_platforms(Communicator())
    there = (*here, "abacus, pebbles 3") if word == "ranks" else (re.sub(f"{word} [^,]*", "x", here[0]),)
    assert there != here
    write_checkpoint(dataclasses.replace(state, numeric_platforms=there), checkpoint_path(tmp_path / "a.h5"))
    assert found_checkpoint(tmp_path / "a.h5", Experiment(machines=4, seed=1)).rounds_done == 9
    assert there[-1] in capsys.readouterr().err
    secret = stopped_state(Experiment(machines=4), random_source(1, 100, 6, 3), 5)
    write_checkpoint(dataclasses.replace(secret, numeric_platforms=there), checkpoint_path(tmp_path / "b.h5"))
    with pytest.raises(InputError, match="costs privacy"):
        found_checkpoint(tmp_path / "b.h5", Experiment(machines=4))


IMPOSSIBLE = {
    "NaN": lambda s: {"iterates": {**s.iterates, "w": s.iterates["w"] * np.nan}},
    "outside": lambda s: {"iterates": {**s.iterates, "x": s.iterates["x"] + 0.05}},
    "other iterates": lambda s: {"iterates": {**s.iterates, "mean": s.iterates["w"]}},
    "an iterate less": lambda s: {"iterates": {"x": s.iterates["x"]}},
    "short q": lambda s: {"q": s.q[:-1]},
    "q of floats": lambda s: {"q": s.q.astype(float)},
    "large q": lambda s: {"q": s.q + 2**62},
    "a row less": lambda s: {"history": type(s.history)(*(c[:-1] for c in vars(s.history).values()))},
}


@pytest.mark.parametrize("kind", IMPOSSIBLE)
def test_a_state_that_the_run_cannot_have_come_to_is_refused(state, kind, tmp_path):
    source, experiment = random_source(1, 100, 6, 3), Experiment(machines=4, seed=1)
    check_checkpoint_arrays(state, resolve_plan(experiment, source, 1), tmp_path / "a.h5")
    path = tmp_path / "a.h5"
    write_checkpoint(dataclasses.replace(state, **IMPOSSIBLE[kind](state)), checkpoint_path(path))
    content = checkpoint_path(path).read_bytes()
    with pytest.raises(InputError, match=str(checkpoint_path(path))):
        job().run_to_file(experiment, source, path, [BEGINS])
    assert checkpoint_path(path).read_bytes() == content
    assert not path.exists()
