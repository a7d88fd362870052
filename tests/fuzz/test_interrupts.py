"""Ctrl-C: whatever runs ends, leaves no half of a file, and can go on."""

import os
import re
import signal
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest

MU2MPI = [sys.executable, "-m", "mu2mpi"]
SECONDS = 60.0
"""By which everything has ended, on a machine that is busy with other things."""

POPULATION = ["--data", "population", "--seed", "1"]


def to(path):
    return ["--output", path]


def start(*words, **options):
    return subprocess.Popen([*MU2MPI, *words], stdout=-1, stderr=-1, text=True, **options)


def interrupted_after(words, lines, log):
    """Interrupt a command once its log has so many lines, and return its code and standard error."""
    process = start(*words, "--log", log)
    while process.poll() is None and not (log.exists() and len(log.read_text().splitlines()) >= lines):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=SECONDS)
    return process.returncode, errors


@pytest.mark.slow
@pytest.mark.parametrize("lines", [1, 3, 5])
def test_a_run_ends_at_an_interrupt_and_goes_on_to_the_same_bits(lines, tmp_path):
    words = ["run", *POPULATION, "--rounds", "4000", "--evaluations", "20"]
    subprocess.run([*MU2MPI, *words, *to(tmp_path / "whole.h5")], check=True, capture_output=True)
    place = tmp_path / "place"
    place.mkdir()
    code, errors = interrupted_after([*words, *to(place / "a.h5")], lines, tmp_path / "log")
    assert code in (0, 75, 130, -signal.SIGINT), errors
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
    asked = ["--rounds", "4000000", "--evaluations", "2", "--log", log]
    process = start("run", *POPULATION, *asked, *to(tmp_path / "a.h5"))
    while not (log.exists() and "round 1 of" in log.read_text()):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 75
    assert "with a checkpoint. Repeat the command to resume" in errors
    shown = subprocess.run([*MU2MPI, "show", tmp_path / "a.h5"], capture_output=True, text=True, check=True)
    assert re.search(r"\n  [1-9][0-9,]* of 4,000,000 rounds in", shown.stdout)


SLEEPS = """
import time
import mu2mpi.execution.warmup as warmup

def sleep():
    print("asleep", flush=True)
    time.sleep(60)

warmup.initialise_numba = sleep
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
    assert (process.returncode, errors) == (130, "mu2mpi: interrupted\n")
