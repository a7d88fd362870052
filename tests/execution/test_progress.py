"""What a run tells of itself while it goes on, on a terminal and elsewhere."""

import io
import re

import pytest

from mu2mpi import Experiment, run
from mu2mpi.execution import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def told(kind, evaluations=5, more=(), **settings):
    stream = Terminal()
    experiment = Experiment(machines=3, rounds=200, seed=1, evaluations=evaluations, **settings)
    run(experiment, callbacks=[kind(stream, *more)])
    return stream.getvalue()


def test_a_log_hears_of_evaluations_with_rate_and_time_left():
    lines = told(progress.LogProgress, more=("[2/3]", 0.0)).splitlines()
    assert lines[0].startswith("[2/3] run: digits, untrusted server, rho = 4: M = 3 machines, T = 200 rounds")
    pattern = (
        r"\[2/3\] round (\d+) of 200: loss 2\.\d{4}, accuracy \d+\.\d%, rho spent ([\d.]+)"
        r"(?:, [\d,.]+ rounds/s, (.*))?"
    )
    found = [re.fullmatch(pattern, line) for line in lines[1:]]
    assert all(found)
    assert [int(match[1]) for match in found] == [1, 4, 14, 53, 200]
    assert found[-1][2] == "4"
    assert found[0][3] is None
    assert all(re.fullmatch(r"\d+:\d\d:\d\d left", match[3]) for match in found[1:-1])
    assert re.fullmatch(r"took [\d.]+ s", found[-1][3])


def test_a_log_hears_of_a_short_run_twice():
    lines = told(progress.LogProgress, evaluations=18).splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("  round 200 of 200: loss 2.")


def test_a_log_hears_every_few_seconds_and_its_estimate_is_of_recent_rounds(monkeypatch):
    """The first round takes 10 seconds, those after the 20th half the time of those before."""
    now = [100.0]

    class Slow(progress.Callback):
        def on_round(self, t):
            now[0] += 10 if t == 1 else 0.5 if t <= 20 else 0.25

    monkeypatch.setattr(progress, "monotonic", lambda: now[0])
    stream = io.StringIO()
    run(
        Experiment(machines=2, rounds=40, seed=1, evaluations=10_000),
        callbacks=[Slow(), progress.LogProgress(stream)],
    )
    found = re.findall(r"round (\d+) of 40: .* rho spent [\d.]+(?:, (.*) rounds/s, (.*))?", stream.getvalue())
    assert found[:4] == [
        ("1", "", ""),
        ("7", "2", "0:00:16 left"),
        ("13", "2", "0:00:14 left"),
        ("19", "2", "0:00:10 left"),
    ]
    assert found[4][:2] == ("30", "3.7")
    assert (found[-1][0], found[-1][1]) == ("40", "1.6")


def test_time_left_counts_only_rounds_of_this_start(tmp_path, monkeypatch):
    """Of 40 rounds, 10 are done when a run stops, and 10 more in the next 5 seconds."""
    now, stream = [100.0], io.StringIO()
    experiment, output = Experiment(machines=2, rounds=40, seed=1, evaluations=10_000), tmp_path / "a.h5"

    class Stops(progress.Callback):
        def on_evaluation(self, evaluation):
            if evaluation.round == 10:
                raise ZeroDivisionError

    class Slow(progress.Callback):
        def on_round(self, t):
            now[0] += 0.5

    monkeypatch.setattr("mu2mpi.execution.simulation.FIRST_CHECKPOINT_SECONDS", 0.0)
    with pytest.raises(ValueError, match="Stops"):
        run(experiment, output=output, callbacks=[Stops()])
    monkeypatch.setattr(progress, "monotonic", lambda: now[0])
    run(experiment, output=output, callbacks=[Slow(), progress.LogProgress(stream, "", 0.0)])
    first = int(re.search(r"resuming after round (\d+)", stream.getvalue())[1])
    assert 0 < first <= 10
    assert "rho spent 4, 2 rounds/s, took" in stream.getvalue().splitlines()[-1]
    assert re.search(r"round 20 of 40: .* 2 rounds/s, 0:00:10 left", stream.getvalue())


def test_a_terminal_has_a_bar_with_all_of_it(monkeypatch):
    monkeypatch.setattr(progress, "BAR_REFRESH_SECONDS", 0.0)
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
