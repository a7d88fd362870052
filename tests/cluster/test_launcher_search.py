"""Choice of a launcher, with launchers that are shell scripts or mpirun."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.launch import SETTINGS, command_on, mu2mpi

from mu2mpi.cluster import launcher_search
from mu2mpi.cluster.launcher_search import find_launcher
from mu2mpi.core.errors import InputError

UNCONNECTED = 'PMI_SIZE=2 "$@"; PMI_SIZE=2 "$@"'


@pytest.fixture(autouse=True)
def no_job(monkeypatch):
    """Unset the environment variables of jobs, and set those of ranks."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def choose(tmp_path, monkeypatch):
    """Function that makes a shell script the launcher, which has a file with the arguments of its starts."""

    def put(text, arguments="{n}"):
        path = tmp_path / "launcher"
        path.write_text(f"#!/bin/sh\necho $1 >> {tmp_path}/starts\nranks=$1; shift\n{text}\n")
        path.chmod(0o755)
        monkeypatch.setenv("MU2MPI_LAUNCHER", f"{path} {arguments}")
        return tmp_path / "starts"

    return put


ALL_SEE_ALL = '"$@" | sed s/^1/$ranks/; "$@" | sed s/^1/$ranks/; [ $ranks = 2 ] || "$@" | sed s/^1/$ranks/'
"""Shell text of a launcher of two or three ranks that passes the probe."""


@pytest.mark.mpi
def test_mpirun_of_the_environment_is_found(monkeypatch):
    mpirun = str(Path(sys.executable).parent / "mpirun")
    assert find_launcher(2, os.environ) == [mpirun, "-n", "2"]
    # A single rank is started without a launcher, and without a probe.
    monkeypatch.setattr(subprocess, "run", None)
    assert find_launcher(1, os.environ) == []


@pytest.mark.parametrize("text", ['"$@"\n"$@"', "exit 7"])
def test_a_launcher_without_connected_ranks_or_that_fails_is_rejected(choose, text):
    choose(text)
    with pytest.raises(InputError, match=r"no launcher starts 2 connected ranks[^@]*MU2MPI_LAUNCHER"):
        find_launcher(2, os.environ)


def test_a_launcher_that_does_not_exist_is_rejected(monkeypatch):
    monkeypatch.setenv("MU2MPI_LAUNCHER", "/nonexistent/srun -n 2")
    with pytest.raises(InputError):
        find_launcher(2, os.environ)


@pytest.mark.parametrize("arguments", ["{n}", "2"], ids=["any number", "fixed number"])
def test_a_launcher_is_probed_at_each_start(choose, arguments):
    log = choose(ALL_SEE_ALL, arguments)
    for _ in range(2):
        assert find_launcher(2, os.environ)[1] == "2"
    assert log.read_text().split() == ["2", "2"]
    if arguments == "2":
        with pytest.raises(InputError):
            find_launcher(3, os.environ)
    else:
        assert find_launcher(3, os.environ)[1] == "3"


def test_a_probe_ends_after_its_time(choose, monkeypatch):
    monkeypatch.setattr(launcher_search, "MAX_LAUNCHER_PROBE_SECONDS", 0.2)
    choose("sleep 30 & sleep 30")
    with pytest.raises(InputError, match=r"timed out after 0\.2 seconds"):
        find_launcher(2, os.environ)


@pytest.mark.slow
@pytest.mark.mpi
def test_a_launcher_that_no_longer_connects_ranks_is_refused_before_the_run(choose, tmp_path):
    run = ("launch", "--ranks", "2", "run", "--data", "synthetic", "--rounds", "3", "--seed", "1")
    mpirun = command_on(2)[0]
    log = choose(f'{mpirun} -n $ranks "$@"')
    assert mu2mpi(*run, "-o", tmp_path / "a.h5").returncode == 0
    choose(UNCONNECTED)
    done = mu2mpi(*run, "-o", tmp_path / "b.h5")
    assert done.returncode == 2
    assert "no launcher starts 2 connected ranks" in done.stderr
    assert not (tmp_path / "b.h5").exists()
    # A probe and a run, and two probes of a search.
    assert len(log.read_text().split()) == 2 + 2
