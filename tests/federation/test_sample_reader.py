"""Samples in chunks of rounds: each read once, in its turn, and the same bits whatever is read at once."""

import sys

import numpy as np
import pytest
from helpers.simulations import simulation_of
from helpers.sources import ArraySource, random_source

from mu2mpi.config.experiment import Experiment
from mu2mpi.data import source as source_module
from mu2mpi.data.partition import iid_rows
from mu2mpi.execution.plan import open_source, resolve_plan
from mu2mpi.federation.sample_reader import make_sample_reader

DIMENSION = 6
KEY = bytes(32)


class Watched(ArraySource):
    """Remembers which training rows were asked for."""

    def read_training(self, rows):
        self.asked.append(rows)
        return super().read_training(rows)


def limit_memory(monkeypatch, source, samples):
    """Have no more than so many samples read at once."""
    for name in ("MAX_IN_MEMORY_SAMPLE_BYTES", "SAMPLE_CHUNK_BYTES"):
        monkeypatch.setattr(source_module, name, samples * source.sample_bytes)


def watched(n: int) -> Watched:
    source = random_source(1, n, DIMENSION, 3)
    source.__class__ = Watched
    source.asked = []
    return source


@pytest.mark.parametrize("at_once", [1, 2, 7, 25, 1000])
@pytest.mark.parametrize("hosted_machines", [range(4), range(1, 3), range(4, 4)])
def test_every_sample_is_read_once_and_in_its_turn(monkeypatch, at_once, hosted_machines):
    source = watched(100)
    limit_memory(monkeypatch, source, at_once * max(1, len(hosted_machines)))
    constants = resolve_plan(Experiment(machines=4), source, 1).constants
    read = make_sample_reader(source, constants, KEY, hosted_machines, "iid", bytes(32))
    rows, t = iid_rows(100, 4, 25, KEY, hosted_machines), 1
    while t <= 25:
        samples = read(t)
        assert samples.rounds.start == t
        expected = rows[t - 1 : samples.rounds.stop - 1]
        np.testing.assert_array_equal(samples.features, source._training.features[expected.ravel()])
        np.testing.assert_array_equal(samples.labels, source._training.labels[expected.ravel()])
        t = samples.rounds.stop
    assert t == 26
    np.testing.assert_array_equal(np.concatenate(source.asked), rows.ravel())
    if len(hosted_machines):
        assert max(map(len, source.asked)) <= at_once * len(hosted_machines)


@pytest.mark.parametrize("server", ["untrusted", "trusted"])
def test_bits_do_not_depend_on_how_much_is_read_at_once(monkeypatch, server):
    experiment = Experiment(server=server, machines=4, seed=3)
    whole = simulation_of(experiment, random_source(1, 100, DIMENSION, 3)).run()
    source = watched(100)
    limit_memory(monkeypatch, source, 3 * 4)
    parts = simulation_of(experiment, source).run()
    assert len(source.asked) == 9
    assert parts.x.tobytes() == whole.x.tobytes()
    assert parts.history.test_loss.tobytes() == whole.history.test_loss.tobytes()


def test_a_round_calls_no_function_for_machines_that_are_away():
    """Set-up and rounds call as many functions of Python for 100 times as many machines."""

    def count_calls(machines):
        experiment = Experiment.from_settings({
            "data": "population", "features": 7, "classes": 4, "machines": machines, "rounds": 6, "rho": 4.0,
            "participation": "uniform:5", "seed": 1, "evaluations": 2,
        })  # fmt: skip
        source = open_source(experiment)
        simulation_of(experiment, source).run()  # compiles kernels and fills caches
        calls = 0

        def count(frame, event, _):
            nonlocal calls
            calls += event == "call"

        sys.setprofile(count)
        try:
            simulation_of(experiment, source).run()
        finally:
            sys.setprofile(None)
        return calls

    few, many = count_calls(400), count_calls(40_000)
    assert many < few + 400
