"""The choice of a launcher, and what a launch makes of its ranks, without a scheduler."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from launch import SETTINGS

from mu2mpi import cli
from mu2mpi.cluster.launchers import find_launcher
from mu2mpi.errors import InputError

PROJECT = Path(__file__).parents[2]


@pytest.mark.mpi
def test_our_own_mpirun_is_found(monkeypatch):
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)

    found = find_launcher(2, os.environ)
    assert found == [str(Path(sys.executable).parent / "mpirun"), "-n", "2"]


def test_a_launcher_whose_ranks_are_alone_is_refused(monkeypatch, tmp_path):
    twice = tmp_path / "twice"
    twice.write_text('#!/bin/sh\n"$@"\n"$@"\n')
    twice.chmod(0o755)
    monkeypatch.setenv("MU2MPI_LAUNCHER", str(twice))

    with pytest.raises(InputError, match="its ranks see 1 ranks"):
        find_launcher(2, os.environ)


def test_a_launcher_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setenv("MU2MPI_LAUNCHER", "/nonexistent/srun -n 2")

    with pytest.raises(InputError, match="/nonexistent/srun"):
        find_launcher(2, os.environ)


@pytest.mark.mpi
def test_launch_returns_the_code_of_the_ranks(tmp_path):
    for arguments, code in ((["info"], 0), (["run", "--rho", "0"], 2)):
        done = subprocess.run(
            [sys.executable, "-m", "mu2mpi", "launch", *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("SLURM_NTASKS", "abc", "SLURM_NTASKS is 'abc', and no number of at least 1"),
        ("SLURM_NTASKS", "0", "SLURM_NTASKS is '0', and no number of at least 1"),
        ("MU2MPI_LAUNCHER", "mpirun 'x", "MU2MPI_LAUNCHER is no command: No closing quotation"),
    ],
)
def test_a_launch_says_what_is_wrong_with_its_environment(variable, value, words, monkeypatch, capsys):
    monkeypatch.setenv("SLURM_NTASKS", "2")
    monkeypatch.setenv(variable, value)
    assert cli.main(["launch", "info"]) == 2
    assert words in capsys.readouterr().err
