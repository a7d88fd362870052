"""Runs on all ranks of this job against the same runs on one."""

from uuid import UUID

import numpy as np
import pytest
from helpers.assertions import assert_same
from helpers.simulations import share_result, simulation_of
from helpers.slow import slow
from helpers.sources import random_source

from mu2mpi.audit.trials import audit
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError, Interrupted
from mu2mpi.core.parallel import Communicator
from mu2mpi.execution.job import run
from mu2mpi.execution.plan import open_source, resolve_plan
from mu2mpi.execution.simulation import CheckpointAction, CheckpointPolicy, Simulation

POPULATION = {"data": "population", "features": 4, "heterogeneity": 0.5}
DRAWN = {"rounds": 12, "batch": 20, "epsilon": 0.5, "clip_norm": 1.0}
OTHERS = [("gradient", "iterate"), ("gradient", "average"), ("corrected-momentum", "iterate")]
PRESETS = [
    {},
    {"method": "anytime-dp-mf"},
    {"noise_correlation": 0.5},
    {"method": "accelerated-srgd", "noise_correlation": 0.9},
    {"method": "ada-ssp"},
    {"method": "dp-newton"},
]
BOTH = ("untrusted", "trusted")
CASES = [
    *(
        {"server": s, "estimator": e, "query": q, "clip_norm": 2.0, "rounds": 20}
        for s in BOTH
        for e, q in OTHERS
    ),
    *({"server": s, "preset": "practical", **own} for s in BOTH for own in PRESETS),
    *({"server": s, "method": "localized-srgd", "phases": 3, "rounds": 10} for s in BOTH),
    {"server": "trusted", "method": "objective-perturbation", "rounds": 20},
    *(
        {"method": method, "local_steps": 3, "rounds": 7, **own}
        for method in ("fedavg", "scaffold")
        for own in ({}, {"batch": 50, "momentum": 0.5, "l2": 0.1})
    ),
    *(
        {
            "method": "fedavg",
            "server": s,
            "unit": "machine",
            "participants": 3,
            "local_steps": 3,
            "rounds": 9,
            "server_optimizer": optimizer,
        }
        for s, optimizer in (("trusted", "adam"), ("aggregated", "average"))
    ),
    *({"server": s, "method": "noisy-minibatch-sgd", **DRAWN} for s in BOTH),
    *({"server": s, "method": "noisy-minibatch-sgd", **DRAWN, **POPULATION} for s in BOTH),
    *({"server": s, "rounds": 30, **POPULATION} for s in BOTH),
    *({"partition": partition} for partition in ("contiguous", "sorted", "dirichlet:0.3", "labels:2")),
]


def source_of(experiment):
    # One of its own each time, so that nothing found with another is used again.
    return open_source(experiment) if experiment.data == "population" else random_source(1, 600, 13, 5)


def assert_as_on_one(communicator, experiment, monkeypatch=None):
    """Compare a run on all ranks, perhaps of data read in parts, with one in a process."""
    alone = simulation_of(experiment, source_of(experiment), Communicator()).run()
    if monkeypatch is not None:
        for name in ("MAX_IN_MEMORY_SAMPLE_BYTES", "SAMPLE_CHUNK_BYTES"):
            monkeypatch.setattr(f"mu2mpi.data.source.{name}", 2000)
    ours = simulation_of(experiment, source_of(experiment), communicator).run()
    assert_same(ours, share_result(alone, communicator))
    assert (ours.experiment, ours.privacy) == (alone.experiment, alone.privacy)
    assert repr(ours.theory) == repr(alone.theory)
    assert ours.timing["compute"].shape == (communicator.size,)
    assert len(set(communicator.allgather(ours.x.tobytes()))) == 1


@pytest.mark.parametrize("server", BOTH)
@pytest.mark.parametrize("machines", [1, 2, 12])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_bits_equal_those_of_one_process(communicator, server, machines, dtype):
    normalize = "unit" if machines == 2 else "none"
    experiment = Experiment(server=server, machines=machines, seed=machines, normalize=normalize)
    ours, alone = (
        simulation_of(experiment, random_source(machines, 20 * machines, 13, 5, dtype), ranks).run()
        for ranks in (communicator, Communicator())
    )
    assert_same(ours, share_result(alone, communicator))
    assert (ours.privacy, ours.theory) == (alone.privacy, alone.theory)


@pytest.mark.parametrize("settings", CASES, ids=lambda settings: "-".join(map(str, settings.values())))
def test_any_method_and_data_have_the_bits_of_one_process(communicator, settings, monkeypatch):
    """Where whole arrays are read, and where they are read in parts."""
    in_parts = None if "preset" in settings else monkeypatch
    assert_as_on_one(communicator, Experiment(**{"machines": 5, "seed": 3, **settings}), in_parts)


@pytest.mark.parametrize("data", ["digits", *slow("population")])
def test_samples_drawn_by_a_trusted_server_have_the_bits_of_one_process(communicator, data):
    settings = {"method": "dp-sgd", "server": "trusted", "data": data, **DRAWN}
    assert_as_on_one(communicator, Experiment(machines=5, seed=3, **settings))


@pytest.mark.parametrize("machines", [1, 2, 5])
@pytest.mark.parametrize("method", ["mu2-sgd", "anytime-dp-mf"])
def test_sums_that_nobody_sees_the_parts_of_have_the_bits_of_one_process(communicator, machines, method):
    """Whichever masks are computed."""
    found = []
    ways = (Communicator(), "crossing"), *((communicator, masks) for masks in ("crossing", "all", "none"))
    for ranks, masks in ways:
        settings = {"server": "aggregated", "rounds": 9, "masks": masks, "method": method}
        experiment = Experiment(machines=machines, seed=3, **settings)
        result = simulation_of(experiment, random_source(machines, 20 * machines, 13, 5), ranks).run()
        found.append(result.x.tobytes())
        assert result.privacy.noise == ("unmasked" if masks == "none" else "protocol")
        assert result.privacy.noise_shares == max(1, machines - 1)
    assert len(set(found)) == 1
    assert len(set(communicator.allgather(found[1]))) == 1


@pytest.mark.parametrize("machines", [1, 5])
def test_shuffled_bits_equal_those_of_one_process(communicator, machines):
    settings = {"server": "shuffled", "rounds": 4, "rho": 20.0, "clip_norm": 1.0, "loss": "logistic"}
    experiment = Experiment(machines=machines, seed=3, **settings)
    ours, alone = (
        simulation_of(experiment, random_source(1, 60, 1, 2), ranks).run()
        for ranks in (communicator, Communicator())
    )
    assert_same(ours, share_result(alone, communicator))
    assert ours.privacy == alone.privacy


class StopBeforeRound5(CheckpointPolicy):
    """Stops a run on all ranks; rank 0 keeps its state."""

    state = None

    def decide(self, t):
        return CheckpointAction.SAVE_AND_STOP if t == 5 else CheckpointAction.CONTINUE

    def save(self, action, state):
        self.state = state
        raise Interrupted(4)


def test_control_variates_of_a_stopped_run_go_to_the_ranks_that_host_their_machines(communicator):
    """Of a run on all ranks that one process resumes, and the other way round."""
    experiment = Experiment(method="scaffold", machines=5, local_steps=3, rounds=8, seed=3)
    found = []
    for before, after in ((communicator, Communicator()), (Communicator(), communicator)):
        plan, policy = resolve_plan(experiment, random_source(1, 600, 13, 5), before.size), StopBeforeRound5()
        with pytest.raises(Interrupted):
            Simulation(plan, before).run(checkpoint_policy=policy)
        state = communicator.bcast_object(policy.state)
        assert state.last_messages.any(axis=(1, 2)).all()
        found.append(Simulation(plan, after, state if after.rank == 0 else None).run().w.tobytes())
    alone = simulation_of(experiment, random_source(1, 600, 13, 5)).run().w.tobytes()
    assert found == [alone, alone]


def test_every_rank_gets_the_same_result_and_holds_only_its_samples(communicator):
    source = random_source(1, 60, 4, 3)
    simulation = simulation_of(Experiment(machines=6, seed=1), source, communicator)
    held = communicator.allgather(simulation.machines.samples.features.size)
    assert sum(held) == 60 * 4
    assert max(held) - min(held) <= 10 * 4
    assert sum(communicator.allgather(len(simulation.evaluator.full_test_blocks.samples.labels))) == 30
    result = simulation.run()
    assert len(set(communicator.allgather(result.x.tobytes()))) == 1


def test_every_rank_knows_the_id_of_the_run_and_what_rank_0_found(communicator):
    settings = {"data": "synthetic", "samples": 60, "features": 2, "machines": 2, "rounds": 4}
    found = communicator.allgather(run(Experiment(**settings, seed=1)).environment)
    assert all(environment == found[0] for environment in found)
    assert UUID(found[0]["run_id"]).version == 4


def test_machines_default_to_ranks(communicator):
    result = simulation_of(Experiment(seed=1), random_source(1, 60, 4, 3), communicator).run()
    assert result.experiment.machines == communicator.size
    assert result.experiment.rounds == 60 // communicator.size


@pytest.mark.parametrize("server", BOTH)
def test_without_a_seed_all_ranks_share_what_they_must(communicator, server):
    experiment = Experiment(server=server, machines=2 * communicator.size)
    simulation = simulation_of(experiment, random_source(1, 200, 4, 3), communicator)
    assert np.isfinite(simulation.run().x).all()
    if server == "untrusted":
        assert len(set(communicator.allgather(simulation.machines.key.tobytes()))) == 1
        assert len(set(communicator.allgather(simulation.server.iterates.x.tobytes()))) == 1


def test_bad_input_is_an_error_on_every_rank(communicator, tmp_path):
    for experiment in (Experiment(machines=10**6), Experiment(machines=2, rounds=10**6)):
        with pytest.raises(InputError):
            run(experiment, output=tmp_path / "a.h5")
    assert not (tmp_path / "a.h5").exists()


@pytest.mark.parametrize(("rho", "trials", "stops"), [(1.0, 73, [73, 73]), (4.0, 1000, [500, 500])])
def test_an_audit_divided_among_ranks_finds_the_same(communicator, rho, trials, stops):
    """And stops after as many runs."""
    experiment = Experiment(server="trusted", machines=3, rounds=3, rho=rho, seed=1)
    report = audit(experiment, trials, communicator)
    assert report == audit(experiment, trials, Communicator())
    assert [verdict.trials for verdict in report.verdicts] == stops
