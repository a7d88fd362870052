"""Ctrl-C at random moments: whatever runs ends, leaves no half of a file, and can go on."""

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

from mu2mpi.results.reader import read_result

MU2MPI = [sys.executable, "-m", "mu2mpi"]
ENDED = {0, 75, 130, -signal.SIGINT}
"""Done before; stopped with a checkpoint; ended at once; and ended by Python before any of our code ran."""

SECONDS = 20.0
"""By which everything has ended, on a machine that is busy with other things."""

RUNS = 20
POPULATION = ["--data", "population", "--seed", "1"]
SWEEP = 'data = "synthetic"\nsamples = 400\nmachines = 4\nseed = [{}]\n'


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    """Return what takes a folder and gives a command, and how long that takes if nobody interrupts it."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "sweep.toml").write_text(SWEEP.format(", ".join(map(str, range(RUNS)))))
    words = {
        "run": lambda place: ["run", *POPULATION, "--rounds", "4000", *to(place / "a.h5")],
        "sweep": lambda place: ["sweep", folder / "sweep.toml", *to(place / "runs")],
        "table": lambda place: ["table", folder / "runs"],
        "plot": lambda place: ["plot", "history", folder / "runs", *to(place / "f.png")],
    }
    seconds = {}
    for name, command in words.items():
        for _ in range(2):
            began = time.monotonic()
            more = ["--overwrite"] if name != "table" else []
            subprocess.run([*MU2MPI, *command(folder), *more], check=True, capture_output=True)
            seconds[name] = time.monotonic() - began
    return folder, words, seconds


def to(path):
    return ["--output", path]


def start(*words, **options):
    return subprocess.Popen([*MU2MPI, *words], stdout=-1, stderr=-1, text=True, **options)


def interrupted(words, moments):
    """Interrupt a command at some moments, in seconds, and return its code and standard error."""
    process = subprocess.Popen(
        [*MU2MPI, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    began = time.monotonic()
    for moment in sorted(moments):
        time.sleep(max(0.0, began + moment - time.monotonic()))
        process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=SECONDS)
    return process.returncode, errors


@pytest.mark.slow
@pytest.mark.parametrize("name", ["run", "sweep", "table", "plot"])
def test_everything_ends_at_an_interrupt_and_leaves_nothing_half_done(name, commands, moments, tmp_path):
    whole, words, seconds = commands
    for number in range(3):
        place = tmp_path / str(number)
        place.mkdir()
        # Every third comes twice.
        at = [moments.uniform(0.2, seconds[name]) for _ in range(1 + (number % 3 == 2))]
        code, errors = interrupted(words[name](place), at)
        said = f"{name} interrupted at {at} s ended with {code}: {errors}"
        assert code in ENDED or "Python runtime state" in errors, said
        assert "Exception ignored" not in errors, said
        assert code != 130 or errors.endswith("mu2mpi: interrupted\n"), said
        files = [path for path in place.rglob("*") if path.is_file()]
        assert not [path for path in files if path.name.startswith(".")], said
        for path in files:
            if path.suffix == ".h5":
                read_result(path)
            elif path.suffix == ".png":
                assert path.read_bytes().endswith(b"IEND\xaeB`\x82"), said
        if code == 75:
            assert "with a checkpoint; the same command goes on from it" in errors, said
            assert [path for path in files if path.suffix == ".checkpoint"], said
            goes_on(whole, place, words[name](place))


def goes_on(whole: Path, place: Path, words: list[object]) -> None:
    """Check that the same command ends what was begun, with the bits of what nobody interrupted."""
    subprocess.run([*MU2MPI, *words], check=True, capture_output=True, timeout=60)
    results = sorted(path.relative_to(place) for path in place.rglob("*") if path.is_file())
    assert results == [Path("a.h5")] or len(results) == RUNS
    for path in results:
        with h5py.File(place / path) as found, h5py.File(whole / path) as expected:
            np.testing.assert_array_equal(found["model/x"], expected["model/x"])


def test_an_interrupt_keeps_a_checkpoint_and_says_how_to_go_on(tmp_path):
    log = tmp_path / "log"
    asked = ["--rounds", "4000000", "--evaluations", "2", "--log", log]
    process = start("run", *POPULATION, *asked, *to(tmp_path / "a.h5"))
    while not (log.exists() and "round 1 of" in log.read_text()):
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 75
    assert "with a checkpoint; the same command goes on from it" in errors
    shown = subprocess.run([*MU2MPI, "show", tmp_path / "a.h5"], capture_output=True, text=True, check=True)
    assert re.search(r"\n  [1-9][0-9,]* of 4,000,000 rounds in", shown.stdout)


SLEEPS = """
import time
import mu2mpi.execution.warmup as warmup

def sleep():
    print("asleep", flush=True)
    time.sleep(60)

warmup.start_compiler = sleep
"""


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
    _, errors = process.communicate(timeout=5)
    assert (process.returncode, errors) == (130, "mu2mpi: interrupted\n")
