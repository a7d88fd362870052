"""What a run tells of itself while it goes on, on a terminal and in a log."""

import io
import multiprocessing
import os
import re
import resource
import signal

import pytest

import mu2mpi
from mu2mpi import Experiment, run
from mu2mpi.cli import main
from mu2mpi.core.errors import Interrupted
from mu2mpi.execution import progress
from mu2mpi.execution.progress import LogFile
from mu2mpi.results.callbacks import Callback


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


SETTINGS = {"data": "synthetic", "samples": 60, "features": 2, "machines": 2, "rounds": 20, "seed": 1}


class Stops(Callback):
    def on_evaluation(self, evaluation):
        if evaluation.round == 8:
            signal.raise_signal(signal.SIGUSR1)


def test_logs_go_on_where_a_run_does(tmp_path, monkeypatch):
    monkeypatch.setattr("mu2mpi.execution.simulation.DECISION_INTERVAL_SECONDS", 0.0)
    path, output = tmp_path / "a.log", tmp_path / "a.h5"
    with pytest.raises(Interrupted) as stop:
        mu2mpi.run(SETTINGS, output=output, callbacks=[LogFile(path), Stops()])
    result = mu2mpi.run(SETTINGS, output=output, callbacks=[LogFile(path)])
    lines, history, done = path.read_text().splitlines(), result.history, stop.value.rounds_done
    start = rf"20\S+\+00:00 {re.escape(str(output))}: "
    assert all(re.match(start, line) for line in lines)
    texts = [re.sub(start, "", line) for line in lines]
    measured = [text for text in texts if text.startswith("round ")]
    columns = (history.round, history.test_loss, history.test_accuracy, history.rho_spent)
    assert measured == [
        f"round {t} of 20: loss {loss:.4f}, accuracy {score:.1%}, rho spent {spent:.3g}"
        for t, loss, score, spent in zip(*columns, strict=True)
    ]
    first, resumed = (text for text in texts if "T = 20 rounds" in text)
    assert (first, resumed.endswith(f"; resuming after round {done}")) == (texts[0], True)
    assert [text for text in texts if "checkpoint" in text] == [f"checkpoint after round {done}"]
    assert texts[-1].startswith("done, took ")


def test_names_in_a_log_need_be_no_text(tmp_path):
    path, output = tmp_path / "a.log", tmp_path / os.fsdecode(b"\xff.h5")
    mu2mpi.run({**SETTINGS, "rho": float("inf")}, output=output, callbacks=[LogFile(path)])
    assert b"\\udcff.h5" in path.read_bytes()


def run_with_log(path, seed):
    mu2mpi.run({**SETTINGS, "seed": seed}, callbacks=[LogFile(path)])


def test_lines_of_several_processes_stay_whole(tmp_path):
    path, context = tmp_path / "a.log", multiprocessing.get_context("fork")
    writers = [context.Process(target=run_with_log, args=(path, seed)) for seed in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    lines = path.read_text().splitlines()
    assert all(re.match(r"20\S+\+00:00 run: (synthetic, |round |done, took )", line) for line in lines)
    assert sum("done, took" in line for line in lines) == 3


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
    result = mu2mpi.run(SETTINGS, callbacks=[LogFile(path)])
    assert 500 < path.stat().st_size <= 1000
    assert capsys.readouterr().err.count("the run continues without it") == 1
    assert len(result.history) >= 12


def test_no_file_of_the_user_is_a_log(tmp_path, capsys):
    data, output = tmp_path / "data.csv", tmp_path / "a.h5"
    data.write_text("a,label\n1,0\n0,1\n")
    run = ["run", "--machines", "2", "--rounds", "5", "-o", str(output)]
    for file in (data, output, tmp_path / "a.h5.checkpoint", tmp_path):
        assert main([*run, "--log", str(file)]) == 2
        assert str(file) in capsys.readouterr().err
    assert data.read_text() == "a,label\n1,0\n0,1\n"
    assert [path.name for path in tmp_path.iterdir()] == ["data.csv"]
    log = str(tmp_path / "log")
    assert main([*run, "--log", log]) == 0
    assert main([*run, "--overwrite", "--log", log]) == 0


def test_commands_write_logs(tmp_path):
    options = [part for name, value in SETTINGS.items() for part in (f"--{name}", str(value))]
    log = tmp_path / "new" / "a.log"
    assert main(["run", *options, "-o", str(tmp_path / "a.h5"), "--log", str(log)]) == 0
    config = tmp_path / "sweep.toml"
    config.write_text("seed = [1, 2]")
    assert main(["sweep", str(config), *options[:-2], "-o", str(tmp_path), "--log", str(log)]) == 0
    finished = [line.split()[1] for line in log.read_text().splitlines() if "done, took" in line]
    assert finished == [f"{tmp_path / name}:" for name in ("a.h5", "seed-1.h5", "seed-2.h5")]


def test_a_log_says_that_a_test_set_of_ones_own_is_not_protected(tmp_path):
    data, path = tmp_path / "a.csv", tmp_path / "a.log"
    data.write_text("a,b,label\n" + "0.5,1,0\n-0.5,0.2,1\n" * 20)
    mu2mpi.run({"data": str(data), "machines": 2, "rounds": 3}, callbacks=[LogFile(path)])
    assert "not private" in path.read_text().splitlines()[0]
