"""What a run tells of itself while it goes on, on a terminal and in a log."""

import io
import re
from dataclasses import replace

import numpy as np
import pytest

from mu2mpi import Experiment, run
from mu2mpi.execution import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def told(kind, evaluations=5, more=(), **settings):
    stream = Terminal()
    experiment = Experiment(machines=3, rounds=200, seed=1, evaluations=evaluations, **settings)
    run(experiment, observers=[kind(stream, *more)])
    return stream.getvalue()


def test_a_log_hears_of_evaluations_with_rate_and_time_left():
    lines = told(progress.LogProgress, more=("[2/3]", 0.0)).splitlines()
    assert lines[0].startswith("[2/3] run: digits, untrusted server, rho = 4: M = 3 machines, T = 200 rounds")
    pattern = (
        r"\[2/3\] round (\d+) of 200: loss 2\.\d{4}, accuracy \d+\.\d%, rho spent ([\d.]+), "
        r"[\d,.]+ rounds/s, (.*)"
    )
    found = [re.fullmatch(pattern, line) for line in lines[1:]]
    assert all(found)
    assert [int(match[1]) for match in found] == [1, 4, 14, 53, 200]
    assert found[-1][2] == "4"
    assert all(re.fullmatch(r"\d+:\d\d:\d\d left", match[3]) for match in found[:-1])
    assert re.fullmatch(r"took [\d.]+ s", found[-1][3])


def test_a_log_hears_of_a_short_run_twice():
    lines = told(progress.LogProgress, evaluations=18).splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("  round 200 of 200: loss 2.")


def test_a_log_hears_every_few_seconds(monkeypatch):
    now = [100.0]

    class Slow(progress.Observer):
        def on_round(self, t):
            now[0] += 0.5

    monkeypatch.setattr(progress, "monotonic", lambda: now[0])
    stream = io.StringIO()
    run(
        Experiment(machines=2, rounds=40, seed=1, evaluations=10_000),
        observers=[Slow(), progress.LogProgress(stream)],
    )
    found = re.findall(r"round (\d+) of 40: .* 2 rounds/s, (.*)", stream.getvalue())
    assert [int(t) for t, _ in found] == [6, 12, 18, 24, 30, 36, 40]
    assert found[1][1] == "0:00:14 left"


def test_time_left_counts_only_rounds_of_this_start(tmp_path, monkeypatch):
    """Of 40 rounds, 10 are done when a run stops, and 10 more in the next 5 seconds."""
    now, stream = [100.0], io.StringIO()
    experiment, output = Experiment(machines=2, rounds=40, seed=1, evaluations=10_000), tmp_path / "a.h5"

    class Stops(progress.Observer):
        def on_evaluation(self, evaluation):
            if evaluation.round == 10:
                raise ZeroDivisionError

    class Slow(progress.Observer):
        def on_round(self, t):
            now[0] += 0.5

    monkeypatch.setattr("mu2mpi.execution.watch.FIRST_SECONDS", 0.0)
    with pytest.raises(ValueError, match="Stops"):
        run(experiment, output=output, observers=[Stops()])
    monkeypatch.setattr(progress, "monotonic", lambda: now[0])
    run(experiment, output=output, observers=[Slow(), progress.LogProgress(stream, "", 0.0)])
    first = int(re.search(r"going on after round (\d+)", stream.getvalue())[1])
    assert 0 < first <= 10
    assert "rho spent 4, 2 rounds/s, took" in stream.getvalue().splitlines()[-1]
    assert re.search(r"round 20 of 40: .* 2 rounds/s, 0:00:10 left", stream.getvalue())


def test_a_terminal_has_a_bar_with_all_of_it(monkeypatch):
    monkeypatch.setattr(progress, "REFRESH_SECONDS", 0.0)
    text = told(progress.BarProgress)
    bars = [part for part in text.split("\r") if "round/s" in part]
    assert re.search(r"\d+/200 \[\d\d:\d\d<\d\d:\d\d, +[\d.]+\w?round/s", bars[-1])
    assert re.search(r"loss 2\.\d{4}, rho spent [\d.]+", bars[-1])
    spent = [float(found) for found in re.findall(r"rho spent ([\d.]+)", "".join(bars))]
    # Not only at the five rounds of evaluation.
    assert len(set(spent)) > 20
    assert spent == sorted(spent)
    assert spent[-1] == pytest.approx(4, rel=0.02)
    assert re.search(r"  round 200 of 200: loss 2.*took [\d.]+ s\n$", text)


@pytest.mark.parametrize(
    ("ranks", "waiting", "expected"),
    [(4, 0.4, None), (4, 0.6, 1), (8, 0.6, 3), (8, 0.51, 3), (1, 0.9, None), (8, 0.99, 1)],
)
def test_ranks_that_mostly_wait_are_advised_against(ranks, waiting, expected):
    """By as many as were busy, if the run took at least a second."""
    result = run(Experiment(machines=2, rounds=3, seed=1))
    shares = {"compute": 0.9 * (1 - waiting), "noise": 0.1 * (1 - waiting), "moving": waiting / 2}
    for seconds in (0.5, 30.0):
        timing = {n: np.full(ranks, s * seconds) for n, s in (shares | {"waiting": waiting / 2}).items()}
        advice = progress.advice_on_ranks(replace(result, timing=timing))
        found = None if advice is None else int(re.search(r"-n (\d+)", advice)[1])
        assert found == (expected if seconds > 1 else None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (progress.number_text(12345.4), "12,345"),
        (progress.number_text(9.87), "9.9"),
        (progress.number_text(0.0123), "0.012"),
        (progress.duration_text(12.3), "12 s"),
        (progress.duration_text(125.4), "0:02:05"),
    ],
)
def test_numbers_have_no_exponents_and_durations_are_short(text, expected):
    assert text == expected
