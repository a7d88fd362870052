"""Runs on all ranks of this job against the same runs on one."""

import importlib

import numpy as np
import pytest
from arrays import random_source
from same import assert_same
from schedules import simulation_of
from slowly import slow

from mu2mpi.audit.trials import audit
from mu2mpi.config.experiment import Experiment
from mu2mpi.data.opening import open_source
from mu2mpi.errors import InputError
from mu2mpi.execution.job import run
from mu2mpi.execution.simulation import share_result
from mu2mpi.parallel import Communicator


@pytest.mark.parametrize("server", ["untrusted", "trusted"])
@pytest.mark.parametrize("machines", [1, 2, 5, 12])
@pytest.mark.parametrize(
    ("dtype", "normalize"),
    [
        (np.uint8, "none"),
        (np.float32, "none"),
        (np.float64, "none"),
        (np.uint8, "unit"),
        (np.float32, "unit"),
    ],
)
def test_bits_equal_those_of_one_process(communicator, server, machines, dtype, normalize):
    source = random_source(machines, 20 * machines, 13, 5, dtype)
    experiment = Experiment(server=server, machines=machines, seed=machines, normalize=normalize)
    ours = simulation_of(experiment, source, communicator).run()
    # A source of its own, so that nothing found with ours is used again.
    source = random_source(machines, 20 * machines, 13, 5, dtype)
    alone = simulation_of(experiment, source, Communicator()).run()
    assert_same(ours, share_result(alone, communicator))
    assert ours.privacy == alone.privacy
    assert ours.theory == alone.theory
    assert ours.timing["compute"].shape == (communicator.size,)


@pytest.mark.parametrize("server", ["untrusted", "trusted"])
@pytest.mark.parametrize("machines", [1, 5])
@pytest.mark.parametrize(
    ("estimator", "query"),
    [("gradient", "iterate"), ("gradient", "average"), ("corrected-momentum", "iterate")],
)
def test_other_methods_have_the_bits_of_one_process(communicator, server, machines, estimator, query):
    experiment = Experiment(
        server=server, machines=machines, rounds=20, seed=3, clip_norm=2.0, estimator=estimator, query=query
    )
    source = random_source(machines, 20 * machines, 13, 5)
    ours, alone = (simulation_of(experiment, source, ranks).run() for ranks in (communicator, Communicator()))
    assert ours.x.tobytes() == alone.x.tobytes()
    assert ours.privacy == alone.privacy
    np.testing.assert_array_equal(ours.history.test_loss, alone.history.test_loss)
    assert len(set(communicator.allgather(ours.x.tobytes()))) == 1


@pytest.mark.parametrize("machines", [1, 2, 5])
@pytest.mark.parametrize("method", ["mu2-sgd", "anytime-dp-mf"])
def test_sums_that_nobody_sees_the_parts_of_have_the_bits_of_one_process(communicator, machines, method):
    """Whichever masks are computed."""
    found = []
    for ranks, masks in (
        (Communicator(), "crossing"),
        *((communicator, m) for m in ("crossing", "all", "none")),
    ):
        experiment = Experiment(
            server="aggregated", machines=machines, rounds=9, seed=3, masks=masks, method=method
        )
        result = simulation_of(experiment, random_source(machines, 20 * machines, 13, 5), ranks).run()
        found.append(result.x.tobytes())
        assert result.privacy.noise == ("unmasked" if masks == "none" else "protocol")
        assert result.privacy.parts == max(1, machines - 1)
    assert len(set(found)) == 1
    assert len(set(communicator.allgather(found[1]))) == 1


@pytest.mark.parametrize(("shuffle", "machines"), [("sums", 1), ("sums", 5), ("messages", 2)])
def test_shuffled_bits_equal_those_of_one_process(communicator, shuffle, machines):
    experiment = Experiment(
        server="shuffled",
        machines=machines,
        rounds=4,
        rho=20.0,
        seed=3,
        clip_norm=1.0,
        loss="logistic",
        shuffle=shuffle,
    )
    ours, alone = (
        simulation_of(experiment, random_source(1, 60, 1, 2), ranks).run()
        for ranks in (communicator, Communicator())
    )
    assert ours.x.tobytes() == alone.x.tobytes()
    assert ours.privacy == alone.privacy
    assert len(set(communicator.allgather(ours.x.tobytes()))) == 1


@pytest.mark.parametrize(("server", "machines"), [("untrusted", 1), ("trusted", 1), ("trusted", 5)])
def test_growing_batches_have_the_bits_of_one_process(communicator, server, machines):
    experiment = Experiment(method="snowball-sgd", server=server, machines=machines, rho=1.0, seed=3)
    source = random_source(machines, 120 * machines, 13, 5)
    ours, alone = (simulation_of(experiment, source, ranks).run() for ranks in (communicator, Communicator()))
    assert ours.x.tobytes() == alone.x.tobytes()
    assert ours.privacy == alone.privacy
    np.testing.assert_array_equal(ours.class_counts, share_result(alone, communicator).class_counts)
    assert len(set(communicator.allgather(ours.x.tobytes()))) == 1


@pytest.fixture(scope="module")
def accountant():
    """Have the library at hand that accounts for dp-sgd: to import it for the first time takes seconds."""
    return importlib.import_module("dp_accounting.pld.privacy_loss_distribution")


@pytest.mark.parametrize(
    ("method", "server", "data"),
    [
        ("noisy-minibatch-sgd", "untrusted", "arrays"),
        ("noisy-minibatch-sgd", "untrusted", "population"),
        ("noisy-minibatch-sgd", "trusted", "arrays"),
        ("noisy-minibatch-sgd", "trusted", "population"),
        ("dp-sgd", "trusted", "arrays"),
        *slow(("dp-sgd", "trusted", "population")),
    ],
)
def test_samples_drawn_at_random_have_the_bits_of_one_process(
    communicator, accountant, monkeypatch, method, server, data
):
    experiment = Experiment(
        data="population" if data == "population" else "digits",
        method=method, server=server, machines=5, rounds=12, batch=20, epsilon=0.5, seed=3, clip_norm=1.0,
    )  # fmt: skip

    def result(ranks):
        source = open_source(experiment) if data == "population" else random_source(5, 104, 13, 5)
        return simulation_of(experiment, source, ranks).run()

    alone = result(Communicator())
    for name in ("WHOLE_BYTES", "PART_BYTES"):
        monkeypatch.setattr(f"mu2mpi.data.source.{name}", 2000)
    ours = result(communicator)
    assert ours.x.tobytes() == alone.x.tobytes()
    assert ours.privacy.epsilon_exact == alone.privacy.epsilon_exact
    np.testing.assert_array_equal(ours.history.test_loss, alone.history.test_loss)
    np.testing.assert_array_equal(ours.class_counts, share_result(alone, communicator).class_counts)
    assert len(set(communicator.allgather(ours.x.tobytes()))) == 1


@pytest.mark.parametrize("server", ["untrusted", "trusted"])
def test_populations_have_the_bits_of_one_process(communicator, server):
    experiment = Experiment(
        data="population", server=server, machines=5, rounds=30, seed=1, features=4, heterogeneity=0.5
    )
    ours, alone = (
        simulation_of(experiment, open_source(experiment), ranks).run()
        for ranks in (communicator, Communicator())
    )
    assert ours.x.tobytes() == alone.x.tobytes()
    assert ours.theory == alone.theory
    np.testing.assert_array_equal(ours.history.test_loss, alone.history.test_loss)


@pytest.mark.parametrize("server", ["untrusted", "trusted"])
@pytest.mark.parametrize(
    "own",
    [
        {},
        {"method": "mu2-sgd"},
        {"method": "anytime-dp-mf"},
        {"noise_correlation": 0.5},
        {"method": "accelerated-srgd", "noise_correlation": 0.9},
    ],
)
def test_bits_of_the_preset_equal_those_of_one_process(communicator, server, own):
    """Of every method that has one, with noise that is correlated or not."""
    experiment = Experiment(preset="practical", server=server, machines=5, seed=1, **own)
    source = random_source(5, 100, 13, 5)
    ours = simulation_of(experiment, source, communicator).run()
    alone = simulation_of(experiment, source, Communicator()).run()
    assert ours.experiment == alone.experiment
    assert ours.x.tobytes() == alone.x.tobytes()


@pytest.mark.parametrize("partition", ["contiguous", "sorted", "dirichlet:0.3", "labels:2"])
def test_any_partition_read_in_parts_gives_the_bits_of_one_process(communicator, monkeypatch, partition):
    experiment = Experiment(machines=7, seed=3, partition=partition)
    alone = simulation_of(experiment, random_source(4, 300, 13, 5), Communicator()).run()
    for name in ("WHOLE_BYTES", "PART_BYTES"):
        monkeypatch.setattr(f"mu2mpi.data.source.{name}", 500)
    ours = simulation_of(experiment, random_source(4, 300, 13, 5), communicator).run()
    assert ours.x.tobytes() == alone.x.tobytes()
    np.testing.assert_array_equal(ours.class_counts, share_result(alone, communicator).class_counts)
    assert communicator.rank or np.all(ours.class_counts.sum(axis=1) == ours.experiment.rounds)


def test_every_rank_gets_the_same_result_and_holds_only_its_samples(communicator):
    source = random_source(1, 60, 4, 3)
    simulation = simulation_of(Experiment(machines=6, seed=1), source, communicator)
    held = communicator.allgather(simulation.machines.samples.features.size)
    assert sum(held) == 60 * 4
    assert max(held) - min(held) <= 10 * 4
    assert sum(communicator.allgather(len(simulation.evaluator.whole.samples))) == 30
    result = simulation.run()
    assert len(set(communicator.allgather(result.x.tobytes()))) == 1


def test_machines_default_to_ranks(communicator):
    result = simulation_of(Experiment(seed=1), random_source(1, 60, 4, 3), communicator).run()
    assert result.experiment.machines == communicator.size
    assert result.experiment.rounds == 60 // communicator.size


def test_without_a_seed_all_ranks_share_what_they_must(communicator):
    for server in ("untrusted", "trusted"):
        experiment = Experiment(server=server, machines=2 * communicator.size)
        simulation = simulation_of(experiment, random_source(1, 200, 4, 3), communicator)
        result = simulation.run()
        assert np.isfinite(result.x).all()
        if server == "untrusted":
            assert len(set(communicator.allgather(simulation.machines.key.tobytes()))) == 1
            points = communicator.allgather(simulation.server.iterates.x.tobytes())
            assert len(set(points)) == 1


def test_bad_input_is_an_error_on_every_rank(communicator, tmp_path):
    for experiment in (Experiment(machines=10**6), Experiment(machines=2, rounds=10**6)):
        with pytest.raises(InputError):
            run(experiment, output=tmp_path / "a.h5")
    assert not (tmp_path / "a.h5").exists()


def test_an_audit_divided_among_ranks_finds_the_same(communicator):
    experiment = Experiment(server="trusted", machines=3, rounds=3, rho=1.0, seed=1)
    assert audit(experiment, 73, communicator) == audit(experiment, 73, Communicator())
