"""Logs: whole lines, from several processes and starts, and no reason for a run to end."""

import json
import multiprocessing
import os
import re
import resource
import signal

import pytest

import mu2mpi
from mu2mpi.cli import main
from mu2mpi.core.errors import Interrupted
from mu2mpi.execution.progress import LogFile
from mu2mpi.results.observer import Observer

SETTINGS = {"data": "synthetic", "samples": 60, "features": 2, "machines": 2, "rounds": 20, "seed": 1}


def events(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


class Stops(Observer):
    def on_evaluation(self, evaluation):
        if evaluation.round == 8:
            signal.raise_signal(signal.SIGUSR1)


def test_logs_go_on_where_a_run_does(tmp_path, monkeypatch):
    monkeypatch.setattr("mu2mpi.execution.watch.LOOK_SECONDS", 0.0)
    plain, as_json, output = tmp_path / "a.log", tmp_path / "a.jsonl", tmp_path / "a.h5"
    logs = [LogFile(plain), LogFile(as_json, as_json=True)]
    with pytest.raises(Interrupted) as stop:
        mu2mpi.run(SETTINGS, output=output, observers=[*logs, Stops()])
    result = mu2mpi.run(SETTINGS, output=output, observers=logs)
    found, history = events(as_json), result.history
    assert {event["run"] for event in found} == {str(output)}
    assert found[0]["settings"]["rounds"] == 20
    measured = [event for event in found if event["event"] == "evaluation"]
    for name, column in (("round", "round"), ("loss", "test_loss"), ("score", "test_accuracy")):
        assert [event[name] for event in measured] == getattr(history, column).tolist()
    assert [event["rho_spent"] for event in measured] == history.rho_spent.tolist()
    starts = [event for event in found if event["event"] == "start"]
    assert [start["rounds_done"] for start in starts] == [0, stop.value.rounds_done]
    assert [event["round"] for event in found if event["event"] == "checkpoint"] == [stop.value.rounds_done]
    assert found[-1]["event"] == "finish"
    lines = plain.read_text().splitlines()
    assert len(lines) == len(found)
    assert all(re.match(rf"20\S+\+00:00 {re.escape(str(output))}: ", line) for line in lines)


def test_numbers_that_are_not_finite_are_null_and_names_need_be_no_text(tmp_path):
    path, output = tmp_path / "a.jsonl", tmp_path / os.fsdecode(b"\xff.h5")
    logs = [LogFile(path, as_json=True), LogFile(tmp_path / "a.log")]
    mu2mpi.run({**SETTINGS, "rho": float("inf")}, output=output, observers=logs)
    assert events(path)[0]["settings"]["rho"] is None
    assert b"\\udcff.h5" in (tmp_path / "a.log").read_bytes()


def run_with_log(path, seed):
    mu2mpi.run({**SETTINGS, "seed": seed}, observers=[LogFile(path, as_json=True)])


def test_lines_of_several_processes_stay_whole(tmp_path):
    path, context = tmp_path / "a.jsonl", multiprocessing.get_context("fork")
    writers = [context.Process(target=run_with_log, args=(path, seed)) for seed in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [event["event"] for event in events(path)].count("finish") == 3


@pytest.fixture
def most_bytes():
    """Return what lets no file of this process grow beyond so many bytes, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_costs_lines_and_no_run(tmp_path, capsys, most_bytes):
    path = tmp_path / "a.log"
    most_bytes(1000)
    result = mu2mpi.run(SETTINGS, observers=[LogFile(path)])
    assert 500 < path.stat().st_size <= 1000
    assert capsys.readouterr().err.count("the run goes on without") == 1
    assert len(result.history) >= 12


def test_no_file_of_the_user_is_a_log(tmp_path, capsys):
    data, output = tmp_path / "data.csv", tmp_path / "a.h5"
    data.write_text("a,label\n1,0\n0,1\n")
    run = ["run", "--machines", "2", "--rounds", "5", "-o", str(output)]
    for option in ("--log", "--log-json"):
        for file in (data, output, tmp_path / "a.h5.checkpoint", tmp_path):
            assert main([*run, option, str(file)]) == 2
            assert str(file) in capsys.readouterr().err
    assert data.read_text() == "a,label\n1,0\n0,1\n"
    assert [path.name for path in tmp_path.iterdir()] == ["data.csv"]
    same = str(tmp_path / "log")
    assert main([*run, "--log", same, "--log-json", same]) == 2
    assert main([*run, "--log", same]) == 0
    assert main([*run, "--overwrite", "--log-json", same]) == 2
    assert main([*run, "--overwrite", "--log", same]) == 0


def test_commands_write_logs(tmp_path):
    options = [part for name, value in SETTINGS.items() for part in (f"--{name}", str(value))]
    plain, as_json = tmp_path / "new" / "a.log", tmp_path / "a.jsonl"
    logs = ["--log", str(plain), "--log-json", str(as_json)]
    assert main(["run", *options, "-o", str(tmp_path / "a.h5"), *logs]) == 0
    config = tmp_path / "sweep.toml"
    config.write_text("seed = [1, 2]")
    assert main(["sweep", str(config), *options[:-2], "-o", str(tmp_path), *logs]) == 0
    finished = [event["run"] for event in events(as_json) if event["event"] == "finish"]
    assert finished == [str(tmp_path / name) for name in ("a.h5", "seed-1.h5", "seed-2.h5")]
    assert plain.read_text().count("done, took") == 3


def test_a_log_says_that_a_test_set_of_ones_own_is_not_protected(tmp_path):
    data, path = tmp_path / "a.csv", tmp_path / "a.log"
    data.write_text("a,b,label\n" + "0.5,1,0\n-0.5,0.2,1\n" * 20)
    mu2mpi.run({"data": str(data), "machines": 2, "rounds": 3}, observers=[LogFile(path)])
    assert "not private" in path.read_text().splitlines()[0]
