"""Who hears of a run hears all of it once and nothing private, and may fail."""

import signal

import numpy as np
import pytest

import mu2mpi
from mu2mpi.core.errors import InputError, Interrupted
from mu2mpi.results.callbacks import Callback
from mu2mpi.results.reader import read_result
from mu2mpi.results.records import checkpoint_path

SETTINGS = {"data": "synthetic", "samples": 60, "features": 2, "machines": 2, "rounds": 20, "seed": 1}


class Recorder(Callback):
    """Notes what it hears, and fails where it is to."""

    def __init__(self, fails_at=None):
        self.heard, self.fails_at = [], fails_at

    def __getattribute__(self, name):
        if not name.startswith("on_"):
            return super().__getattribute__(name)

        def hear(*told):
            self.heard.append((name, *told))
            if name == self.fails_at:
                raise RuntimeError("enough")

        return hear

    def names(self):
        return [name for name, *_ in self.heard if name != "on_round"]


class Counting(Recorder):
    def on_round(self, t):
        """Say that rounds are listened to."""


def test_all_callbacks_hear_all_of_a_run_once(tmp_path):
    recorders, output = [Counting(), Recorder()], tmp_path / "a.h5"
    result = mu2mpi.run(SETTINGS, output=output, callbacks=recorders)
    count = len(result.history)
    assert count >= 12
    for recorder in recorders:
        assert recorder.names() == ["on_start", *["on_evaluation"] * count, "on_close", "on_finish"]
        ((_, start),) = [told for told in recorder.heard if told[0] == "on_start"]
        assert (start.name, start.rounds_done, start.ranks) == (str(output), 0, 1)
        assert start.experiment == result.experiment
        measured = [told for name, *told in recorder.heard if name == "on_evaluation"]
        assert [e.round for (e,) in measured] == result.history.round.tolist()
        assert [e.loss for (e,) in measured] == result.history.test_loss.tolist()
        assert [e.rho_spent for (e,) in measured] == result.history.rho_spent.tolist()
    rounds = [told[1] for told in recorders[0].heard if told[0] == "on_round"]
    assert rounds == list(range(1, 21))
    assert not any(told[0] == "on_round" for told in recorders[1].heard)


def test_nobody_hears_what_no_noise_covers(tmp_path):
    recorder = Recorder()
    result = mu2mpi.run(SETTINGS, callbacks=[recorder])
    assert result.diagnostics is not None
    (told,) = [told for name, *told in recorder.heard if name == "on_finish"]
    assert told[0].diagnostics is None
    assert told[0].x.tobytes() == result.x.tobytes()


@pytest.mark.parametrize("moment", ["on_start", "on_round", "on_evaluation", "on_close", "on_finish"])
def test_whoever_fails_ends_the_run_with_the_reason(tmp_path, moment):
    output, other = tmp_path / "a.h5", Counting()
    with pytest.raises(
        InputError, match=r"the callback Counting failed: RuntimeError: enough \(.*\.py, line"
    ) as found:
        mu2mpi.run(SETTINGS, output=output, callbacks=[other, Counting(moment)])
    assert isinstance(found.value.__cause__, RuntimeError)
    assert other.names().count("on_close") == 1
    # All that was done by then stays.
    is_over = moment in ("on_close", "on_finish")
    assert output.exists() == is_over
    assert checkpoint_path(output).exists() == (not is_over)
    expected = mu2mpi.run(SETTINGS)
    if not is_over:
        mu2mpi.run(SETTINGS, output=output)
    assert read_result(output).x.tobytes() == expected.x.tobytes()


def test_checkpoints_are_heard_of(tmp_path, monkeypatch):
    class Stops(Recorder):
        def __getattribute__(self, name):
            if name == "on_evaluation" and len(self.heard) == 8:
                signal.raise_signal(signal.SIGUSR1)
            return super().__getattribute__(name)

    monkeypatch.setattr("mu2mpi.execution.simulation.DECISION_INTERVAL_SECONDS", 0.0)
    first, again, output = Stops(), Recorder(), tmp_path / "a.h5"
    with pytest.raises(Interrupted) as stop:
        mu2mpi.run(SETTINGS, output=output, callbacks=[first])
    assert first.heard[-2:] == [("on_checkpoint", stop.value.rounds_done), ("on_close",)]
    result = mu2mpi.run(SETTINGS, output=output, callbacks=[again])
    assert again.heard[0][1].rounds_done == stop.value.rounds_done
    rounds = [told[0].round for name, *told in first.heard + again.heard if name == "on_evaluation"]
    assert rounds == result.history.round.tolist()
    np.testing.assert_array_equal(result.history.test_samples, 1000)


def test_a_sweep_from_python_is_loaded_in_its_order(tmp_path, capsys):
    settings = {**SETTINGS, "machines": [5, 2], "rounds": 10, "seed": [2, 1]}
    recorder = Recorder()
    runs = mu2mpi.sweep(settings, output=tmp_path, callbacks=[recorder], progress=False)
    assert capsys.readouterr() == ("", "")
    found = [(run.experiment.machines, run.experiment.seed) for run in runs]
    assert found == [(5, 2), (5, 1), (2, 2), (2, 1)]
    assert recorder.names().count("on_finish") == 4
    config = tmp_path / "sweep.toml"
    config.write_text("\n".join(f"{name} = {value!r}".replace("'", '"') for name, value in settings.items()))
    again = mu2mpi.sweep(str(config), output=tmp_path, callbacks=[recorder])
    assert [run.path for run in again] == [run.path for run in runs]
    assert recorder.names().count("on_finish") == 4
    assert "4 of 4 runs are finished" in capsys.readouterr().err


def test_a_result_of_another_experiment_is_replaced_on_demand_alone(tmp_path):
    """The way out is said, and works."""
    settings = {**SETTINGS, "seed": [1, 2]}
    (same, _) = mu2mpi.sweep(settings, output=tmp_path)
    before = same.path.read_bytes()
    with pytest.raises(InputError, match=r"evaluations is 3 here and unset there.*--overwrite"):
        mu2mpi.sweep({**settings, "evaluations": 3}, output=tmp_path)
    assert same.path.read_bytes() == before
    (new, _) = mu2mpi.sweep({**settings, "evaluations": 3}, output=tmp_path, overwrite=True)
    assert len(new.history) == 3
    assert new.x.tobytes() == same.x.tobytes()
    with pytest.raises(InputError, match="rho is 3"):
        mu2mpi.sweep({**settings, "evaluations": 4, "rho": 3.0}, output=tmp_path)
