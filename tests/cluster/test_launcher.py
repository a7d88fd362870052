"""Number of ranks, choice of a launcher, and exit codes and requeues of a launch, without a scheduler."""

import os
import shlex
import signal
import subprocess
import sys
import time
from itertools import product

import pytest
from helpers.launch import command_on, mu2mpi
from helpers.slow import slow

from mu2mpi import cli
from mu2mpi.cli.program import parse
from mu2mpi.cluster import launcher, slurm
from mu2mpi.cluster.launcher import OutputFiles, default_rank_count
from mu2mpi.core.errors import InputError
from mu2mpi.results.records import checkpoint_path


@pytest.fixture(autouse=True)
def no_job(monkeypatch):
    """Unset the environment variables of jobs."""
    for name in (
        "SLURM_JOB_ID",
        "MU2MPI_RANKS",
        "SLURM_NTASKS",
        "SLURM_TASKS_PER_NODE",
        "SLURM_ARRAY_TASK_ID",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("variables", "ranks"),
    [
        ("", 1),
        ("MU2MPI_RANKS=3", 3),
        ("SLURM_JOB_ID=1 SLURM_NTASKS=6 SLURM_TASKS_PER_NODE=4,2", 6),
        ("SLURM_JOB_ID=1 SLURM_NTASKS=6 MU2MPI_RANKS=2", 2),
        ("SLURM_JOB_ID=1 SLURM_TASKS_PER_NODE=1", 1),
        ("SLURM_NTASKS=6", 1),
        ("SLURM_JOB_ID=1 SLURM_TASKS_PER_NODE=1(x2)", None),
        ("MU2MPI_RANKS=0", None),
        ("SLURM_JOB_ID=1 SLURM_NTASKS=abc", None),
    ],
)
def test_the_ranks_of_a_job(monkeypatch, variables, ranks):
    for variable in variables.split():
        monkeypatch.setenv(*variable.split("="))
    if ranks is not None:
        assert default_rank_count() == ranks
        return
    with pytest.raises(InputError):
        default_rank_count()


STOPPED, PROGRESS, STUCK = "stopped with a checkpoint", "lost after progress", "lost without progress"


@pytest.mark.parametrize(
    ("ended", "by"),
    [*product((STOPPED, PROGRESS, STUCK), ("nobody", "USR1", "preempt", "scancel", "INT", "requeue"))],
)
@pytest.mark.parametrize(("starts", "node_is_lost"), [(0, False), (3, False), (3, True)])
def test_which_jobs_are_requeued(monkeypatch, tmp_path, ended, by, starts, node_is_lost):
    causes = {"preempt": "scheduler", "scancel": "user", "requeue": "requeue"}
    limits = []
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setattr(slurm, "requeue_count", lambda: starts)
    monkeypatch.setattr(slurm, "all_nodes_respond", lambda: not node_is_lost)
    monkeypatch.setattr(slurm, "termination_cause", lambda: causes[by])
    monkeypatch.setattr(slurm, "requeue_job", lambda limit: limits.append(limit) or True)
    outputs = OutputFiles([tmp_path / "a.h5"])
    if ended != STUCK:
        checkpoint_path(tmp_path / "a.h5").touch()
    signals = {"nobody": [], "USR1": [signal.SIGUSR1], "INT": [signal.SIGINT]}.get(by, [signal.SIGTERM])
    is_requeued = launcher._requeue_unfinished(75 if ended == STOPPED else None, outputs, {*signals}, 20)
    may_restart = ended != STUCK or starts < 3 or node_is_lost
    assert is_requeued == (by in ("USR1", "preempt") or (by == "nobody" and may_restart))
    assert limits == [20] * is_requeued


def fake_launcher(folder, text):
    path = folder / "launcher"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def run(folder, *arguments, text=None, **variables):
    """Launch a command on two ranks, by a shell script with the given text."""
    if text is not None:
        variables["MU2MPI_LAUNCHER"] = fake_launcher(folder, text)
    return mu2mpi("launch", "--ranks", "2", *arguments, cwd=folder, **variables)


ALL_SEE_TWO = '"$@" | sed s/^1/2/; "$@" | sed s/^1/2/'
"""Shell text of a launcher whose ranks are not connected but which passes the probe."""


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [2, *slow(1)])
@pytest.mark.parametrize(
    ("arguments", "code"), [*slow(("info", 0)), ("run --data mnist --data-dir nowhere", 2)]
)
def test_launch_returns_the_exit_code_of_the_ranks(arguments, code, ranks, tmp_path):
    done = mu2mpi("launch", "--ranks", str(ranks), *arguments.split(), cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
@pytest.mark.mpi
def test_ranks_exit_with_0_on_invalid_input_if_it_is_in_the_exit_report(tmp_path):
    text = f'{command_on(2)[0]} -n 2 "$@"; echo $? > code'
    done = run(tmp_path, "run", "--data", "mnist", "--data-dir", "nowhere", text=text)
    assert done.returncode == 2
    assert (tmp_path / "code").read_text() == "0\n"


def test_a_missing_exit_report_is_a_failure_whatever_the_launcher_returns(tmp_path):
    # As Open MPI after the loss of a node. The exit report is in the nearest existing folder of the results.
    (tmp_path / "runs").mkdir()
    text = f'case "$*" in *" -m mu2mpi"*) ls -A runs > seen; exit 0;; esac; {ALL_SEE_TWO}'
    done = run(tmp_path, "run", "--output", "runs/deeper/a.h5", text=text)
    assert done.returncode == 1
    assert (tmp_path / "seen").read_text().startswith(".mu2mpi-launch-0-")
    assert not [*(tmp_path / "runs").iterdir()]


@pytest.mark.slow
def test_the_exit_report_overrides_the_code_of_the_launcher(tmp_path):
    done = run(tmp_path, "info", text=f'case "$*" in *" -m mu2mpi"*) "$@"; exit 9;; esac; {ALL_SEE_TWO}')
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_rank_that_cannot_write_its_report_exits_with_the_code_itself(tmp_path):
    path = tmp_path / "word"
    done = mu2mpi(
        "run", "--data", "mnist", "--data-dir", "nowhere", cwd=tmp_path, MU2MPI_EXIT_REPORT=str(path)
    )
    assert done.returncode == 2
    assert not path.exists()


def test_a_signal_during_a_probe_stops_the_launch(tmp_path):
    text = f"touch {shlex.quote(str(tmp_path / 'begun'))}; exec sleep 30"
    variables = {**os.environ, "MU2MPI_LAUNCHER": fake_launcher(tmp_path, text)}
    command = [sys.executable, "-m", "mu2mpi", "launch", "--ranks", "2", "info"]
    with subprocess.Popen(command, cwd=tmp_path, env=variables, stderr=subprocess.PIPE, text=True) as process:
        while not (tmp_path / "begun").exists():
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert not [*tmp_path.glob(".mu2mpi*")]


@pytest.mark.parametrize(("variable", "value"), [("MU2MPI_RANKS", "0"), ("MU2MPI_LAUNCHER", "mpirun 'x")])
def test_messages_name_an_invalid_environment_variable(variable, value, monkeypatch, capsys):
    monkeypatch.setenv("MU2MPI_RANKS", "2")
    monkeypatch.setenv(variable, value)
    assert cli.main(["launch", "info"]) == 2
    assert variable in capsys.readouterr().err


@pytest.fixture
def paths(tmp_path):
    return [tmp_path / "runs" / name for name in ("a.h5", "b.h5")]


def write(path, text="a result"):
    path.parent.mkdir(exist_ok=True)
    path.with_name("new").write_text(text)
    path.with_name("new").replace(path)


def test_initial_files_and_files_of_other_commands_are_no_progress(paths, tmp_path):
    assert OutputFiles(paths).nearest_existing_folder() == tmp_path
    write(checkpoint_path(paths[0]))
    outputs = OutputFiles(paths)
    assert outputs.nearest_existing_folder() == tmp_path / "runs"
    write(paths[0].with_name("of another.h5"))
    checkpoint_path(paths[0]).unlink()
    assert not outputs.changed_since_launch()
    assert not OutputFiles([]).are_complete()


@pytest.mark.parametrize("was_there", [False, True])
def test_a_new_checkpoint_is_progress(paths, was_there):
    if was_there:
        write(checkpoint_path(paths[1]))
    outputs = OutputFiles(paths)
    write(checkpoint_path(paths[1]))
    assert outputs.changed_since_launch()
    assert not outputs.are_complete()


def test_outputs_are_complete_with_every_result_and_no_checkpoint(paths):
    outputs = OutputFiles(paths)
    write(paths[0])
    assert not outputs.are_complete()
    write(checkpoint_path(paths[1]))
    write(paths[1])
    assert not outputs.are_complete()
    checkpoint_path(paths[1]).unlink()
    assert outputs.are_complete()


def test_with_overwrite_an_earlier_result_does_not_count(paths):
    write(paths[0])
    outputs = OutputFiles(paths[:1], overwrite=True)
    assert not outputs.are_complete()
    write(paths[0])
    assert outputs.are_complete()


SWEEP = 'data = "digits"\nmachines = 2\nrounds = 3\nserver = ["untrusted", "trusted"]\nseed = 1\n'


@pytest.mark.parametrize(
    "words", ["run --rounds 3 --seed 1", "run -o x/a.h5 --rounds 3", "sweep s.toml --index 1"]
)
def test_commands_declare_the_files_that_they_write(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.toml").write_text(SWEEP)
    arguments = parse(words.split())
    named = arguments.command.output_paths(arguments, 1)
    assert cli.main(words.split()) == 0
    assert {*named} == {path.relative_to(tmp_path) for path in tmp_path.rglob("*.h5")}
