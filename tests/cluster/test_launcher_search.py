"""Choice of a launcher, and the cache of the answer, with launchers that are shell scripts or mpirun."""

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
    monkeypatch.setattr(launcher_search.slurm, "version", lambda: "")
    assert find_launcher(2, os.environ) == [mpirun, "-n", "2"]
    # The second time, and for another number of ranks, nothing is started.
    monkeypatch.setattr(subprocess, "run", None)
    assert find_launcher(3, os.environ) == [mpirun, "-n", "3"]


@pytest.mark.parametrize("text", ['"$@"\n"$@"', "exit 7"])
def test_a_launcher_without_connected_ranks_or_that_fails_is_rejected(choose, cache, text):
    choose(text)
    with pytest.raises(InputError):
        find_launcher(2, os.environ)
    assert not [*cache.iterdir()]


def test_a_launcher_that_does_not_exist_is_rejected(monkeypatch):
    monkeypatch.setenv("MU2MPI_LAUNCHER", "/nonexistent/srun -n 2")
    with pytest.raises(InputError):
        find_launcher(2, os.environ)


@pytest.mark.parametrize(
    ("arguments", "starts"), [("{n}", ["2"]), ("2", ["2", "2", "2"])], ids=["any number", "fixed number"]
)
def test_a_launcher_is_probed_once_unless_its_number_of_ranks_is_fixed(choose, arguments, starts):
    log = choose(ALL_SEE_ALL, arguments)
    for ranks in (2, 2, 3):
        if arguments == "2" and ranks == 3:
            with pytest.raises(InputError):
                find_launcher(ranks, os.environ)
        else:
            assert find_launcher(ranks, os.environ)[1] == str(ranks)
    assert log.read_text().split() == starts


def test_the_cache_may_be_unwritable_or_of_another_cluster(choose, cache, monkeypatch):
    log = choose(ALL_SEE_ALL)
    monkeypatch.setenv("MU2MPI_CACHE_DIR", "/proc/nowhere")
    for _ in range(2):
        find_launcher(2, os.environ)
    monkeypatch.setenv("MU2MPI_CACHE_DIR", str(cache))
    for variable in ("SLURM_CLUSTER_NAME=a", "SLURM_CLUSTER_NAME=b", "SLURM_JOB_NUM_NODES=2"):
        monkeypatch.setenv(*variable.split("="))
        find_launcher(2, os.environ)
    assert len(log.read_text().split()) == 5
    # A command that is no candidate is not used, wherever it comes from.
    for path in (cache / "launchers").iterdir():
        path.write_text("touch /tmp/mu2mpi-planted {n}")
    assert find_launcher(2, os.environ)[0].endswith("launcher")


def test_a_probe_ends_after_its_time(choose, monkeypatch):
    monkeypatch.setattr(launcher_search, "MAX_LAUNCHER_PROBE_SECONDS", 0.2)
    choose("sleep 30 & sleep 30")
    with pytest.raises(InputError, match=r"timed out after 0\.2 seconds"):
        find_launcher(2, os.environ)


@pytest.mark.slow
@pytest.mark.mpi
def test_a_cached_launcher_that_no_longer_connects_ranks_is_forgotten(choose, cache, tmp_path):
    run = ("launch", "--ranks", "2", "run", "--data", "synthetic", "--rounds", "3", "--seed", "1")
    mpirun = command_on(2)[0]
    choose(f'{mpirun} -n $ranks "$@"')
    find_launcher(2, os.environ)
    log = choose(UNCONNECTED)
    done = mu2mpi(*run, "-o", tmp_path / "b.h5")
    assert done.returncode == 2
    assert "no launcher starts 2 connected ranks" in done.stderr
    assert not [*(cache / "launchers").iterdir()]
    assert not (tmp_path / "b.h5").exists()
    # Bad input is no fault of the launcher.
    choose(f'{mpirun} -n $ranks "$@"')
    find_launcher(2, os.environ)
    assert mu2mpi(*run[:4], "--data", "mnist", "--data-dir", "nowhere").returncode == 2
    assert len([*(cache / "launchers").iterdir()]) == 1
    # A probe; a run, a probe, and two probes of a search; a probe, a run and a probe.
    assert len(log.read_text().split()) == 1 + 4 + 3
