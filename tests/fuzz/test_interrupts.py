"""Signals: whatever runs ends on all ranks, leaves no half of a file, and can go on."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
from helpers.hosts import wait_for
from helpers.launch import SETTINGS, command_on

from mu2mpi.core.signals import STOP_SIGNALS

MU2MPI = [sys.executable, "-m", "mu2mpi"]
SECONDS = 60.0
"""By which everything has ended, on a machine that is busy with other things."""

POPULATION = ["--data", "population", "--seed", "1"]


def to(path):
    return ["--output", path]


def start(*words, **options):
    return subprocess.Popen([*MU2MPI, *words], stdout=-1, stderr=-1, text=True, **options)


def start_with_log(words, log):
    """Start a command whose standard error, with a line of progress for each evaluation, is a file."""
    code = "import sys; from mu2mpi import cli; from mu2mpi.execution import progress\n"
    code += "progress.progress_callback.__defaults__ = '', 0.0\nsys.exit(cli.main())"
    with open(log, "a") as errors:
        return subprocess.Popen([sys.executable, "-c", code, *words], stdout=-1, stderr=errors, text=True)


def interrupted_after(words, lines, log):
    """Interrupt a command after so many lines of progress, and return its code and standard error."""
    process = start_with_log(words, log)
    while process.poll() is None and not (log.exists() and len(log.read_text().splitlines()) >= lines):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=SECONDS)
    return process.returncode, log.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("lines", [1, 3, 5])
def test_a_run_ends_at_an_interrupt_and_goes_on_to_the_same_bits(lines, tmp_path):
    words = ["run", *POPULATION, "--rounds", "4000", "--evaluations", "20"]
    subprocess.run([*MU2MPI, *words, *to(tmp_path / "whole.h5")], check=True, capture_output=True)
    place = tmp_path / "place"
    place.mkdir()
    code, errors = interrupted_after([*words, *to(place / "a.h5")], lines, tmp_path / "log")
    assert code in (0, 75, -signal.SIGINT), errors
    assert "Traceback" not in errors
    names = {path.name for path in place.iterdir()}
    assert names <= ({"a.h5"} if code == 0 else {"a.h5.checkpoint", "a.h5.checkpoint.previous"})
    subprocess.run([*MU2MPI, *words, *to(place / "a.h5"), *["--overwrite"] * (code == 0)], check=True)
    assert [path.name for path in place.iterdir()] == ["a.h5"]
    with h5py.File(place / "a.h5") as found, h5py.File(tmp_path / "whole.h5") as expected:
        np.testing.assert_array_equal(found["model/x"], expected["model/x"])


@pytest.mark.slow
def test_an_interrupt_keeps_a_checkpoint_and_says_how_to_go_on(tmp_path):
    log = tmp_path / "log"
    asked = ["--rounds", "4000000", "--evaluations", "2"]
    process = start_with_log(["run", *POPULATION, *asked, *to(tmp_path / "a.h5")], log)
    while not (log.exists() and "round 1 of" in log.read_text()):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=SECONDS)
    assert process.returncode == 75
    errors = log.read_text()
    assert "with a checkpoint. Repeat the command to resume" in errors
    shown = subprocess.run([*MU2MPI, "show", tmp_path / "a.h5"], capture_output=True, text=True, check=True)
    assert re.search(r"\n  [1-9][0-9,]* of 4,000,000 rounds in", shown.stdout)


SLEEPS = """
import time
import mu2mpi.execution.simulation as simulation

def sleep(*_):
    print("asleep", flush=True)
    time.sleep(60)

simulation.compile_kernels = sleep
"""


@pytest.mark.slow
def test_a_second_interrupt_ends_at_once(tmp_path):
    """Even where no round comes to ask, as in what compiles or reads."""
    (tmp_path / "sitecustomize.py").write_text(SLEEPS)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    process = start("run", *to(tmp_path / "a.h5"), env=environment)
    assert process.stdout.readline() == "asleep\n"
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.communicate(timeout=0.5)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, errors) == (-signal.SIGINT, "mu2mpi: interrupted\n")


LATE_RANK = """
import os, sys, time
from pathlib import Path

def announce(what):
    Path(os.environ["ANNOUNCED"], f"{rank} {what}").write_text(str(os.getpid()))

class Announcement:
    @staticmethod
    def find_spec(name, *_):
        if name == "mpi4py.MPI":
            announce("initialises MPI")
        if name == os.environ["LATE_AT"] and rank == os.environ["LATE_RANK"]:
            announce("is late")
            time.sleep(float(os.environ["LATE_SECONDS"]))

rank = os.environ.get("PMI_RANK") or os.environ.get("OMPI_COMM_WORLD_RANK")
sys.meta_path.insert(0, Announcement)
"""


LATE_AT = ["mu2mpi", "mu2mpi.cli.commands.run_command"]
"""Modules that a rank imports before it handles signals by itself, and from then on before it starts MPI."""


def start_with_late_rank(folder, ranks, late_rank, late_at, seconds, *words):
    """Start ranks of which one takes so much longer to import, and that announce what they do in a folder."""
    (folder / "hook").mkdir()
    (folder / "hook" / "sitecustomize.py").write_text(LATE_RANK)
    (folder / "announced").mkdir()
    variables = {
        "PYTHONPATH": f"{folder / 'hook'}:{os.environ.get('PYTHONPATH', '')}",
        "ANNOUNCED": str(folder / "announced"),
        "LATE_RANK": str(late_rank),
        "LATE_AT": late_at,
        "LATE_SECONDS": str(seconds),
    }
    command = command_on(ranks, "-m", "mu2mpi", *words)
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command, env={**os.environ, **SETTINGS, **variables}, **streams)


def is_running(text):
    """Return whether there is a process, beside its launcher, with this text in its command line."""
    for process in Path("/proc").iterdir():
        try:
            words = (process / "cmdline").read_bytes().split(b"\0") if process.name.isdigit() else []
        except (FileNotFoundError, ProcessLookupError):
            continue
        if text.encode() in words:
            return True
    return False


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("target", ["mpirun", "0 initialises MPI", "1 is late"])
@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_ends_ranks_that_wait_for_one_that_still_imports(number, target, tmp_path):
    """Neither the late rank nor those that wait for it in MPI_Init outlast it: nothing has been sent yet."""
    output, results = tmp_path / "results" / "a.h5", tmp_path / "results"
    results.mkdir()
    job = start_with_late_rank(tmp_path, 3, 1, LATE_AT[1], 60, "run", *POPULATION, *to(output))
    expected, announced = {"0 initialises MPI", "1 is late", "2 initialises MPI"}, tmp_path / "announced"
    wait_for(lambda: {path.name for path in announced.iterdir() if path.read_text()} == expected, "the ranks")
    time.sleep(0.5)
    if target == "mpirun":
        job.send_signal(number)
    else:
        os.kill(int((announced / target).read_text()), number)
    try:
        assert job.wait(10) not in (0, 75)
        wait_for(lambda: not is_running(str(output)), "the end of the ranks")
    finally:
        job.kill()
    assert list(results.iterdir()) == []


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("case", range(4))
def test_a_signal_at_any_time_of_the_start_loses_nothing(case, tmp_path, chance):
    ranks, number = chance.randint(1, 4), chance.choice(STOP_SIGNALS)
    seconds, late = chance.choice([0.3, 1.0, 4.0]), (chance.randrange(ranks), chance.choice(LATE_AT))
    words = ["run", *POPULATION, "--machines", "4", "--rounds", "2000"]
    output, results = tmp_path / "results" / "a.h5", tmp_path / "results"
    results.mkdir()
    job = start_with_late_rank(tmp_path, ranks, *late, seconds, *words, *to(output))
    time.sleep(chance.uniform(0, 2))
    job.send_signal(number)
    try:
        code = job.wait(SECONDS)
        wait_for(lambda: not is_running(str(output)), "the end of the ranks")
    finally:
        job.kill()
    names = {path.name for path in results.iterdir()}
    assert code != 0 or names == {"a.h5"}
    assert code != 75 or "a.h5.checkpoint" in names
    overwrite = ["--overwrite"] * ("a.h5" in names)
    subprocess.run([*MU2MPI, *words, *to(output), *overwrite], check=True, capture_output=True)
    assert [path.name for path in results.iterdir()] == ["a.h5"]
    subprocess.run([*MU2MPI, *words, *to(tmp_path / "b.h5")], check=True, capture_output=True)
    with h5py.File(output) as found, h5py.File(tmp_path / "b.h5") as expected:
        np.testing.assert_array_equal(found["model/x"], expected["model/x"])


@pytest.mark.slow
def test_of_three_commands_that_resume_one_checkpoint_one_computes_until_it_is_killed(tmp_path):
    output, log = tmp_path / "a.h5", tmp_path / "log"
    words = ["run", *POPULATION, "--rounds", "4000000", "--evaluations", "2", *to(output)]

    def computing():
        process = start_with_log(words, log)
        lines = len(log.read_text().splitlines()) if log.exists() else 0
        wait_for(lambda: log.exists() and len(log.read_text().splitlines()) > lines, "the start of the run")
        return process

    first = computing()
    first.send_signal(signal.SIGTERM)
    assert (first.communicate(), first.returncode)[1] == 75
    second = computing()
    others = [start(*words) for _ in range(2)]
    for other in others:
        _, errors = other.communicate(timeout=SECONDS)
        assert (other.returncode, errors.count("\n")) == (2, 1)
        assert "another job computes" in errors
    second.kill()
    second.communicate()
    third = computing()
    third.send_signal(signal.SIGTERM)
    assert (third.communicate(), third.returncode)[1] == 75
    assert {path.name for path in tmp_path.glob("a.h5*")} == {"a.h5.checkpoint", "a.h5.checkpoint.previous"}
