"""What a run tells of itself while it goes on, on a terminal and in a log."""

import io
import re

import pytest
from arrays import random_source

from mu2mpi import Experiment, run
from mu2mpi.execution import progress
from mu2mpi.execution.plan import resolve


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def told(kind, **settings):
    stream = Terminal()
    run(Experiment(machines=3, rounds=200, seed=1, evaluations=5, **settings), progress=kind(stream))
    return stream.getvalue()


def test_a_log_has_a_line_for_each_evaluation_with_rate_and_time_left():
    lines = told(progress.LogProgress).splitlines()
    assert lines[0].startswith("digits, untrusted server, rho = 4: M = 3 machines, T = 200 rounds")
    pattern = (
        r"  round (\d+) of 200: loss 2\.\d{4}, accuracy \d+\.\d%, rho spent ([\d.]+), "
        r"[\d,.e+]+ rounds/s, \d+:\d\d:\d\d left"
    )
    found = [re.fullmatch(pattern, line) for line in lines[1:]]
    assert all(found)
    assert [int(match[1]) for match in found] == [1, 4, 14, 53, 200]
    assert found[-1][2] == "4"
    assert lines[-1].endswith("0:00:00 left")


def test_time_left_counts_only_rounds_of_this_start(monkeypatch):
    clock = iter([100.0, 110.0])
    monkeypatch.setattr(progress, "monotonic", lambda: next(clock))
    stream = io.StringIO()
    log = progress.LogProgress(stream)

    experiment = Experiment(server="trusted", machines=2, rounds=1000)
    log.start(resolve(experiment, random_source(1, 2000, 4, 3), 1), 400)
    log.measured(500, 2.0, 0.5, 3.0)
    # 100 rounds in 10 seconds, so the 500 that are left take 50.
    assert "10 rounds/s, 0:00:50 left" in stream.getvalue()
    assert "going on after round 400" in stream.getvalue()


def test_a_terminal_has_a_bar_with_all_of_it(monkeypatch):
    monkeypatch.setattr(progress, "REFRESH_SECONDS", 0.0)
    text = told(progress.TerminalProgress)
    bars = [part for part in text.split("\r") if "round/s" in part]
    assert re.search(r"\d+/200 \[\d\d:\d\d<\d\d:\d\d, +[\d.]+\w?round/s", bars[-1])
    assert re.search(r"loss 2\.\d{4}, rho spent [\d.]+", bars[-1])
    spent = [float(found) for found in re.findall(r"rho spent ([\d.]+)", text)]
    # Not only at the five rounds of evaluation.
    assert len(set(spent)) > 20
    assert spent == sorted(spent)
    assert spent[-1] == pytest.approx(4, rel=0.02)


def test_without_noise_nothing_is_spent_in_numbers():
    assert "no noise" in told(progress.LogProgress, rho=float("inf"))
