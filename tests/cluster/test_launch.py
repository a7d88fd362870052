"""The choice of a launcher, and what a launch makes of its ranks, without a scheduler."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from launch import SETTINGS, command_on, mu2mpi

from mu2mpi import cli
from mu2mpi.cluster.launchers import find_launcher
from mu2mpi.errors import InputError


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


def launch(*arguments, cwd, **variables):
    return mu2mpi("launch", *arguments, cwd=cwd, **variables)


def launcher(folder, text):
    path = folder / "launcher"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize(
    ("arguments", "code"),
    [("info", 0), ("run --rho 0", 2), ("run --data mnist --data-dir nowhere", 2), ("table nowhere", 2)],
)
def test_launch_returns_the_code_of_the_ranks(arguments, code, ranks, tmp_path):
    done = launch("--ranks", str(ranks), *arguments.split(), cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert not [*tmp_path.iterdir()]


@pytest.mark.mpi
def test_a_launcher_sees_no_failure_in_what_is_bad_input_for_all_ranks(tmp_path):
    arguments = ["run", "--data", "mnist", "--data-dir", "nowhere"]
    text = f'{command_on(2)[0]} -n 2 "$@"; echo the launcher ends with code $? >&2'
    done = launch("--ranks", "2", *arguments, cwd=tmp_path, MU2MPI_LAUNCHER=launcher(tmp_path, text))
    assert done.returncode == 2
    assert "the launcher ends with code 0" in done.stderr.splitlines()


def test_an_end_without_word_is_a_failure_whatever_the_launcher_says(tmp_path):
    # What Open MPI's launcher makes of the loss of a node.
    text = 'case "$*" in *" -m mu2mpi"*) exit 0;; esac; "$@" | sed s/^1/2/; "$@" | sed s/^1/2/'
    run = ["run", "--data", "digits", "--output", "a.h5"]
    done = launch("--ranks", "2", *run, cwd=tmp_path, MU2MPI_LAUNCHER=launcher(tmp_path, text))
    assert done.returncode == 1
    assert "the ranks ended with code 0 but no word of how the run ended" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["launcher"]


def test_a_word_counts_more_than_the_code_of_a_launcher(tmp_path):
    text = 'case "$*" in *" -m mu2mpi"*) "$@"; exit 9;; esac; "$@" | sed s/^1/2/; "$@" | sed s/^1/2/'
    done = launch("--ranks", "2", "info", cwd=tmp_path, MU2MPI_LAUNCHER=launcher(tmp_path, text))
    assert done.returncode == 0, done.stderr


def test_the_word_lies_where_the_results_will(tmp_path):
    (tmp_path / "runs").mkdir()
    text = 'ls -A runs >&2; case "$*" in *" -m mu2mpi"*) exit;; esac; "$@" | sed s/^1/2/; "$@" | sed s/^1/2/'
    run = ["run", "--data", "digits", "--output", "runs/deeper/a.h5"]
    done = launch("--ranks", "2", *run, cwd=tmp_path, MU2MPI_LAUNCHER=launcher(tmp_path, text))
    assert re.search(r"^\.mu2mpi-launch-0-\w+-0\.word$", done.stderr, re.MULTILINE)
    assert not [*(tmp_path / "runs").iterdir()]


def test_a_rank_that_cannot_leave_word_says_so_and_makes_no_file(tmp_path):
    place = tmp_path / "word"
    done = mu2mpi("run", "--data", "mnist", "--data-dir", "nowhere", cwd=tmp_path, MU2MPI_WORD=str(place))
    assert done.returncode == 2
    assert f"cannot leave word of the end of this run in {place}: No such file" in done.stderr
    assert not place.exists()


def test_what_a_launcher_prints_is_shown_if_none_works(tmp_path):
    text = "echo no authority to speak >&2; exit 7"
    done = launch("--ranks", "2", "info", cwd=tmp_path, MU2MPI_LAUNCHER=launcher(tmp_path, text))
    assert done.returncode == 2
    assert "launcher: it ends with code 7\n    no authority to speak\n" in done.stderr


def test_ranks_that_are_not_on_all_hosts_of_a_job_are_refused(tmp_path):
    hosts = tmp_path / "hosts"
    hosts.write_text("one\ntwo\n")
    job = {"PBS_JOBID": "1.server", "PBS_NODEFILE": str(hosts)}
    text = '"$@" | sed s/^1/2/; "$@" | sed s/^1/2/'
    done = launch("info", cwd=tmp_path, MU2MPI_LAUNCHER=launcher(tmp_path, text), **job)
    assert done.returncode == 2
    assert "its ranks are on 1 of the 2 hosts of this job" in done.stderr


def test_a_signal_during_the_choice_of_a_launcher_ends_it(tmp_path):
    text = f"touch {shlex.quote(str(tmp_path / 'begun'))}; exec sleep 30"
    variables = {**os.environ, "MU2MPI_LAUNCHER": launcher(tmp_path, text)}
    command = [sys.executable, "-m", "mu2mpi", "launch", "--ranks", "2", "info"]
    with subprocess.Popen(command, cwd=tmp_path, env=variables, stderr=subprocess.PIPE, text=True) as process:
        while not (tmp_path / "begun").exists():
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 128 + signal.SIGTERM
    assert "stopped by a signal before the ranks were started" in errors
    assert not [*tmp_path.glob(".mu2mpi*")]


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("MU2MPI_RANKS", "0", "MU2MPI_RANKS is '0', and no number of at least 1"),
        ("MU2MPI_LAUNCHER", "mpirun 'x", "MU2MPI_LAUNCHER is no command: No closing quotation"),
    ],
)
def test_a_launch_says_what_is_wrong_with_its_environment(variable, value, words, monkeypatch, capsys):
    monkeypatch.setenv("MU2MPI_RANKS", "2")
    monkeypatch.setenv(variable, value)
    assert cli.main(["launch", "info"]) == 2
    assert words in capsys.readouterr().err
