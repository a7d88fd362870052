"""What runs tell on several ranks: rank 0 alone is told, all end alike, and a share has the same bits."""

import re
from pathlib import Path

import numpy as np
import pytest
from helpers.simulations import simulation_of
from helpers.sources import random_samples, random_source

import mu2mpi
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.core.parallel import Communicator
from mu2mpi.results.callbacks import Callback

SETTINGS = {"data": "synthetic", "samples": 60, "features": 2, "machines": 3, "rounds": 15, "seed": 1}


class Listener(Callback):
    """Counts what it hears of rounds, and fails at a moment."""

    def __init__(self, fails_at="", error=RuntimeError):
        self.rounds, self.fails_at, self.error = 0, fails_at, error

    def hear(self, moment):
        if moment == self.fails_at:
            raise self.error("enough")

    def on_start(self, start):
        self.hear("start")

    def on_round(self, t):
        self.rounds += 1
        self.hear("round")

    def on_evaluation(self, evaluation):
        self.hear("evaluation")

    def on_finish(self, result):
        self.hear("finish")


@pytest.fixture
def folder(communicator, tmp_path) -> Path:
    """Return the same folder on every rank."""
    shared: Path = communicator.bcast_object(tmp_path)
    return shared


class UnsayableError(Exception):
    def __str__(self):
        raise ValueError("no words")


@pytest.mark.parametrize("error", [SystemExit, UnsayableError])
def test_a_callback_may_not_end_one_rank_alone(communicator, error):
    with pytest.raises(InputError, match=error.__name__):
        mu2mpi.run(SETTINGS, callbacks=[Listener("evaluation", error)], progress=False)


@pytest.mark.parametrize("moment", ["start", "round", "evaluation", "finish"])
def test_a_callback_that_fails_ends_the_run_on_every_rank(communicator, folder, moment):
    for output in (None, folder / "a.h5"):
        listener = Listener(moment)
        with pytest.raises(InputError, match="enough"):
            mu2mpi.run(SETTINGS, output=output, callbacks=[listener])
        assert communicator.allgather(listener.rounds)[1:] == [0] * (communicator.size - 1)
    # The ranks are in step, and what was kept is gone on from.
    result = mu2mpi.run(SETTINGS, output=folder / "a.h5", overwrite=moment == "finish")
    assert len(set(communicator.allgather(result.x.tobytes()))) == 1
    assert result.x.tobytes() == mu2mpi.run(SETTINGS).x.tobytes()


class Log(Callback):
    """Appends a line for each evaluation and for the end of a run to a file."""

    def __init__(self, path):
        self._path = path

    def _write(self, text):
        with open(self._path, "a") as file:
            file.write(f"{self._start.name}: {text}\n")

    def on_start(self, start):
        self._start = start

    def on_evaluation(self, evaluation):
        self._write(f"round {evaluation.round}: {evaluation}")

    def on_finish(self, result):
        self._write("done")


@pytest.mark.parametrize("fails_at", ["", "evaluation"])
def test_lanes_of_a_sweep_write_one_log(communicator, folder, fails_at):
    log, settings = folder / "a.log", {**SETTINGS, "seed": list(range(6))}
    options = {
        "output": folder / "runs",
        "callbacks": [Log(log), Listener(fails_at)],
        "progress": False,
    }
    if fails_at:
        with pytest.raises(InputError, match="enough"):
            mu2mpi.sweep(settings, **options)
        assert not list(folder.glob("runs/*.h5"))
        return
    runs = mu2mpi.sweep(settings, **options)
    assert [run.experiment.seed for run in runs] == list(range(6))
    lines = log.read_text().splitlines()
    for run in runs:
        *measured, last = (line for line in lines if line.startswith(f"{run.path}: "))
        assert last.endswith(": done")
        losses = [re.search(r": loss (\S+),", line)[1] for line in measured]
        assert losses == [f"{loss:.4f}" for loss in run.history.test_loss]


def test_what_is_measured_on_a_share_has_the_bits_of_one_process(communicator):
    experiment = Experiment(server="trusted", machines=3, rounds=40, seed=2)
    source = random_source(3, 200, 600, 20)
    source._test = random_samples(np.random.default_rng(0), 9001, 600, 20, np.uint8)
    source.test_samples = 9001
    ours, alone = (simulation_of(experiment, source, on).run() for on in (communicator, Communicator()))
    assert set(ours.history.test_samples[:-1]) == {2000}
    assert ours.history.test_samples[-1] == 9001
    assert len(ours.history) >= 12
    for name in ("test_samples", "test_loss", "test_accuracy"):
        np.testing.assert_array_equal(getattr(ours.history, name), getattr(alone.history, name))
