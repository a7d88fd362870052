"""What is said where nothing can be written, or the working directory is gone."""

import os
import resource
import subprocess
import sys

import pytest
from helpers.slow import slow

from mu2mpi.cli import main
from mu2mpi.config.experiment import Experiment
from mu2mpi.execution.job import run

COMMAND = [sys.executable, "-m", "mu2mpi"]
LIMIT = 2000
"""Bytes beyond which no file grows, as on a disk that is full."""
KEEPING_NOTHING = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
"""Or modules that are compiled meanwhile would be cut off there, for all processes to come."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    run(Experiment(machines=2, rounds=5, seed=1, evaluations=2), output=folder / "a.h5")
    return folder


def limit_files():
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, LIMIT))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["plot"], "a.svg"),
        *slow((["report"], "a.html")),
        (["publish", "--even-if-unprotected"], "b.h5"),
    ],
)
def test_a_full_disk_is_said_with_the_name_of_the_file(folder, tmp_path, command, name):
    output = tmp_path / name
    words = [*COMMAND, *command, folder / "a.h5", "--output", output]
    done = subprocess.run(words, capture_output=True, text=True, preexec_fn=limit_files, env=KEEPING_NOTHING)
    assert done.returncode == 1
    assert str(output) in done.stderr
    assert "Traceback" not in done.stderr
    assert not output.exists()
    assert not list(tmp_path.glob(".*"))


def test_a_full_disk_below_the_standard_output(folder, tmp_path):
    with open(tmp_path / "file", "wb") as output:
        output.write(bytes(LIMIT))
        output.flush()
        streams = {"stdout": output, "stderr": subprocess.PIPE}
        words = [*COMMAND, "table", folder]
        done = subprocess.run(words, **streams, preexec_fn=limit_files, env=KEEPING_NOTHING)
    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)


def in_a_folder_that_is_gone(tmp_path, *words):
    script = 'mkdir "$0" && cd "$0" && rmdir "$0" && exec "$@"'
    command = ["bash", "-c", script, tmp_path / "gone", *COMMAND, *words]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.slow
def test_in_a_working_directory_that_is_gone_only_absolute_paths_work(folder, tmp_path):
    for words, code in ((["show", folder / "a.h5"], 0), (["show", "a.h5"], 2), (["run", "--rounds", "5"], 2)):
        done = in_a_folder_that_is_gone(tmp_path, *words)
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        assert ("working directory" in done.stderr) == (code == 2)


@pytest.mark.slow
def test_a_report_names_a_file_whose_name_is_not_text(folder, tmp_path):
    odd = tmp_path / os.fsdecode(b"\xff.h5")
    odd.write_bytes(b"no result")
    assert main(["report", str(folder), str(odd), "--output", str(tmp_path / "a.html")]) == 0
    assert "?.h5 " in (tmp_path / "a.html").read_text("utf-8")
