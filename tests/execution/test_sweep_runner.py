"""What a sweep does with its runs in one process: each is settled once, and nothing is run in vain."""

import numpy as np
import pytest

from mu2mpi.config.sweep import Sweep
from mu2mpi.core.errors import InputError
from mu2mpi.core.parallel import Communicator
from mu2mpi.execution import job as job_module, sweep_plans as plans_module, sweep_runner as sweep_module
from mu2mpi.execution.sweep_runner import ConcurrentRuns, run_sweep, time_left_text
from mu2mpi.results.reader import read_result
from mu2mpi.results.writer import write_result

DATA = {"data": "synthetic", "samples": 60, "features": 2, "machines": 2, "rounds": 4}
SETTINGS = {**DATA, "server": ["untrusted", "trusted"], "seed": [1, 2]}


@pytest.fixture
def called(monkeypatch):
    """Return a dictionary that fills with the arguments of what is called, by name."""
    found = {"resolve_plan": [], "open_source_on_ranks": [], "Simulation": []}

    def watch(module, name):
        action = getattr(module, name)

        def watched(*arguments):
            found[name].append(arguments)
            return action(*arguments)

        monkeypatch.setattr(module, name, watched)

    for module in (plans_module, job_module):
        watch(module, "resolve_plan")
        watch(module, "open_source_on_ranks")
    watch(job_module, "Simulation")
    return found


def done(folder, settings=SETTINGS, index=None, overwrite=False):
    """Run a sweep; return its experiments, and its paths."""
    sweep = Sweep(settings)
    chosen = sweep.select_runs(index)
    run_sweep(sweep, chosen, folder, Communicator(), overwrite=overwrite)
    return [experiment for _, experiment in chosen], [folder / sweep.file_name(e) for _, e in chosen]


def images(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_each_run_is_settled_once_and_data_are_opened_once(tmp_path, called):
    experiments, paths = done(tmp_path)
    assert [arguments[0] for arguments in called["resolve_plan"]] == experiments
    assert len(called["open_source_on_ranks"]) == 1
    assert [read_result(path).experiment for path in paths] == experiments
    # What was settled is what ran.
    ran = [arguments[0].experiment for arguments in called["Simulation"]]
    assert sorted(ran, key=experiments.index) == experiments
    assert set(tmp_path.iterdir()) == set(paths)


def test_runs_that_leave_something_open_go_by_what_was_settled(tmp_path, called):
    settings = {"data": "synthetic", "samples": 60, "features": 2, "seed": [1, 2]}
    _, paths = done(tmp_path, settings)
    assert len(called["resolve_plan"]) == 2
    for path in paths:
        found = read_result(path).experiment
        assert (found.machines, found.rounds) == (1, 60)
    called["Simulation"].clear()
    done(tmp_path, settings)
    assert called["Simulation"] == []


def test_finished_runs_are_skipped(tmp_path, called, capsys):
    _, (first,) = done(tmp_path, index=2)
    before = images(tmp_path)
    called["Simulation"].clear()
    done(tmp_path)
    assert len(called["Simulation"]) == 3
    assert images(tmp_path)[first.name] == before[first.name]
    assert "1 of 4 runs are finished; 3 to go" in capsys.readouterr().err
    everything = images(tmp_path)
    called["Simulation"].clear()
    done(tmp_path)
    assert called["Simulation"] == []
    assert images(tmp_path) == everything


def test_to_overwrite_runs_all_again_to_the_same_bits(tmp_path, called):
    _, paths = done(tmp_path)
    times = [path.stat().st_mtime_ns for path in paths]
    models = [read_result(path).x for path in paths]
    called["Simulation"].clear()
    done(tmp_path, overwrite=True)
    assert len(called["Simulation"]) == 4
    assert all(path.stat().st_mtime_ns > time for path, time in zip(paths, times, strict=True))
    for path, x in zip(paths, models, strict=True):
        np.testing.assert_array_equal(read_result(path).x, x)


def test_a_file_of_another_experiment_is_refused_before_anything_runs(tmp_path, called):
    _, paths = done(tmp_path, {**SETTINGS, "rho": 9.0}, index=3)
    before = images(tmp_path)
    called["Simulation"].clear()
    with pytest.raises(InputError, match=rf"{paths[0].name} holds another experiment: rho is 4.0 here and 9"):
        done(tmp_path)
    assert called["Simulation"] == []
    assert images(tmp_path) == before
    done(tmp_path, overwrite=True)
    assert read_result(paths[0]).experiment.rho == 4


def test_refused_runs_are_named_before_and_after_the_others_run(tmp_path, called, capsys):
    sweep = Sweep({**DATA, "rounds": [4, 31, 5]})
    paths, lines = run_sweep(sweep, sweep.select_runs(None), tmp_path, Communicator())
    assert [path.name for path in paths] == ["rounds-4.h5", "rounds-5.h5"]
    assert lines[0] == "1 of 3 runs are refused, the others go on:"
    assert lines[1].startswith("refused: 31 rounds need 31 samples")
    assert lines[2:] == ["  rounds-31.h5"]
    assert len(called["Simulation"]) == 2
    text = capsys.readouterr().err
    assert text.index(lines[1]) < text.index("2 to go")
    assert f"the other 2 runs are in {tmp_path}" in text
    assert {path.name for path in tmp_path.iterdir()} == {"rounds-4.h5", "rounds-5.h5"}


def test_a_sweep_whose_runs_are_all_refused_writes_nothing(tmp_path, called):
    with pytest.raises(InputError, match="32 rounds need 32 samples"):
        done(tmp_path / "runs", {**DATA, "rounds": [32, 31]})
    assert called["Simulation"] == []
    assert not (tmp_path / "runs").exists()


def test_what_another_job_finished_meanwhile_is_left_alone(tmp_path, monkeypatch, capsys):
    """Both came to the same, so that the first is as good."""
    _, paths = done(tmp_path / "others")
    result, at_first = read_result(paths[0]), []
    here = tmp_path / "here" / paths[0].name
    run_to_file = sweep_module.RunContext.run_to_file

    def meanwhile(job, *arguments):
        if not at_first and arguments[2] != here:
            write_result(result, here)
            at_first.append(here.stat().st_mtime_ns)
        return run_to_file(job, *arguments)

    monkeypatch.setattr(sweep_module.RunContext, "run_to_file", meanwhile)
    monkeypatch.setattr(
        sweep_module,
        "schedule_runs",
        lambda machines, *_: [sweep_module.ConcurrentRuns(1, (tuple(range(len(machines)))[::-1],))],
    )
    done(tmp_path / "here")
    assert "finished by another job" in capsys.readouterr().err
    assert [here.stat().st_mtime_ns] == at_first
    assert len(images(tmp_path / "here")) == 4


def test_the_time_left_is_that_of_the_runs_of_this_rank():
    """Ranks 0 and 1 share run 0; then rank 0 does runs 1 and 2, and rank 1 run 3."""
    schedule = [ConcurrentRuns(2, ((0,),)), ConcurrentRuns(1, ((1, 2), (3,)))]
    costs = [8.0, 3.0, 1.0, 4.0]
    first, second = (
        [costs[run] / group.group_size for group in schedule for run in group.queue_of(rank)]
        for rank in (0, 1)
    )
    assert (first, second) == ([4.0, 3.0, 1.0], [4.0, 4.0])
    assert time_left_text(first, 0, 5.0) == ""
    assert {time_left_text(own, 1, 80.0) for own in (first, second)} == {", 0:01:20 left"}
    assert time_left_text(first, 2, 90.0) == ", 13 s left"
    assert time_left_text(second, 2, 90.0) == ""


def test_data_of_finished_runs_are_not_read_again(tmp_path, monkeypatch):
    settings = {**DATA, "data_seed": [1, 2], "seed": 1}
    done(tmp_path, settings, index=0)
    read = []
    monkeypatch.setattr(plans_module, "check_data_on_ranks", lambda source, _: read.append(source))
    done(tmp_path, settings)
    assert len(read) == 1
    done(tmp_path, settings)
    assert len(read) == 1
