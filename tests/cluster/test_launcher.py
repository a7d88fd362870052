"""Number of ranks, choice of a launcher, and exit codes and requeues of a launch, without a scheduler."""

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers.hosts import wait_for
from helpers.launch import command_on, mu2mpi
from helpers.slow import slow

from mu2mpi import cli
from mu2mpi.cli.program import parse
from mu2mpi.cluster import launcher, slurm
from mu2mpi.cluster.launcher import are_complete, default_rank_count, idle_limit
from mu2mpi.core.errors import InputError
from mu2mpi.core.files import file_identity
from mu2mpi.core.rank_report import RANK_REPORT_VARIABLE, RankReport, rank_report_file, read_rank_report
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


@pytest.mark.parametrize("by", ["nobody", "USR1", "preempt", "scancel", "INT", "requeue"])
@pytest.mark.parametrize(("starts", "has_new_rounds"), [(0, False), (1, False), (1, True), (5, True)])
def test_which_jobs_are_requeued(monkeypatch, by, starts, has_new_rounds):
    """After the first requeue, only those with new rounds, whatever ended them."""
    causes = {"preempt": "scheduler", "scancel": "user", "requeue": "requeue"}
    limits = []
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setattr(slurm, "requeue_count", lambda: starts)
    monkeypatch.setattr(slurm, "termination_cause", lambda: causes[by])
    monkeypatch.setattr(slurm, "requeue_job", lambda limit: limits.append(limit) or True)
    signals = {"nobody": [], "USR1": [signal.SIGUSR1], "INT": [signal.SIGINT]}.get(by, [signal.SIGTERM])
    report = RankReport(has_new_rounds=has_new_rounds)
    is_requeued = launcher._requeue_unfinished(report, {*signals}, 20)
    assert is_requeued == (by in ("nobody", "USR1", "preempt") and (starts == 0 or has_new_rounds))
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
def test_ranks_exit_with_0_on_invalid_input_if_rank_0_reports_it(tmp_path):
    text = f'{command_on(2)[0]} -n 2 "$@"; echo $? > code'
    done = run(tmp_path, "run", "--data", "mnist", "--data-dir", "nowhere", text=text)
    assert done.returncode == 2
    assert (tmp_path / "code").read_text() == "0\n"


def test_a_missing_exit_code_of_rank_0_is_a_failure_whatever_the_launcher_returns(tmp_path):
    # As Open MPI after the loss of a node. The report is in the nearest existing folder of the results.
    (tmp_path / "runs").mkdir()
    text = f'case "$*" in *" -m mu2mpi"*) ls -A runs > seen; exit 0;; esac; {ALL_SEE_TWO}'
    done = run(tmp_path, "run", "--output", "runs/deeper/a.h5", text=text)
    assert done.returncode == 1
    assert (tmp_path / "seen").read_text().startswith(".mu2mpi-launch-0-")
    assert not [*(tmp_path / "runs").iterdir()]


@pytest.mark.slow
def test_the_exit_code_of_rank_0_overrides_the_code_of_the_launcher(tmp_path):
    done = run(tmp_path, "info", text=f'case "$*" in *" -m mu2mpi"*) "$@"; exit 9;; esac; {ALL_SEE_TWO}')
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_rank_that_cannot_write_its_report_exits_with_the_code_itself(tmp_path):
    path = tmp_path / "missing"
    done = mu2mpi(
        "run", "--data", "mnist", "--data-dir", "nowhere", cwd=tmp_path, MU2MPI_RANK_REPORT=str(path)
    )
    assert done.returncode == 2
    assert not path.exists()


@pytest.mark.parametrize("has_ended", [False, True])
def test_ranks_without_progress_are_ended(has_ended, tmp_path, monkeypatch, capsys):
    """Also stopped ones, and a launcher that does not end after rank 0 has reported its exit code."""
    monkeypatch.setattr(launcher, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(launcher, "MAX_RANK_STOP_SECONDS", 0.2)
    monkeypatch.setattr(launcher, "MAX_EXIT_SECONDS", 0.2)
    call = "write_exit_code(0)" if has_ended else "write_progress(7, 1e-3)"
    code = f"import os; from mu2mpi.core.rank_report import *; {call}; os.system('kill -STOP $PPID $$')"
    runner, stall_seconds = launcher.RankRunner(), 1e9 if has_ended else 0.2
    with rank_report_file(tmp_path, "7", 0) as path:
        environment = {**os.environ, RANK_REPORT_VARIABLE: str(path)}
        command = [sys.executable, "-c", code]
        assert runner.run_ranks(command, environment, stall_seconds, None) == 128 + signal.SIGKILL
        assert read_rank_report(path)[:2] == ((0, 0) if has_ended else (None, 7))
    assert f"no progress for 0.00333 minutes after round {0 if has_ended else 7}" in capsys.readouterr().err
    # A killed process is listed until the system has ended it.
    wait_for(
        lambda: str(path) not in "".join(map(environment_of, Path("/proc").glob("[0-9]*/environ"))), "end", 20
    )


def environment_of(path):
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def test_the_time_without_progress_is_long_for_long_rounds_and_at_the_start():
    assert idle_limit(RankReport(), 60) == 360
    assert idle_limit(RankReport(None, 7, 0.1), 60) == 60
    assert idle_limit(RankReport(None, 7, 10.0), 60) == 1000
    assert idle_limit(RankReport(None, 7, 10.0), float("inf")) == float("inf")
    assert idle_limit(RankReport(0, 7, 10.0), float("inf")) == launcher.MAX_EXIT_SECONDS


@pytest.fixture
def small_cgroup():
    """Make a control group with a limit of 100 MB, named as that of a job; both versions can be mounted."""
    version_1 = Path("/sys/fs/cgroup/memory")
    folder = (version_1 if version_1.exists() else version_1.parent) / f"job_{os.getpid()}"
    try:
        folder.mkdir()
        (folder / ("memory.limit_in_bytes" if version_1.exists() else "memory.max")).write_text("100000000")
    except OSError as error:
        pytest.skip(f"no control group with a limit can be made: {error}")
    yield folder
    folder.rmdir()


def test_a_rank_that_is_killed_for_lack_of_memory(small_cgroup, tmp_path):
    is_rank = "import sys; x = bytearray(1 << 28)"
    text = f"""case "$*" in *" -m mu2mpi"*) {sys.executable} -c '{is_rank}'; exit $?;; esac; {ALL_SEE_TWO}"""
    command = f"echo $$ > {small_cgroup}/cgroup.procs; exec {sys.executable} -m mu2mpi launch --ranks 2 run"
    variables = {**os.environ, "MU2MPI_LAUNCHER": fake_launcher(tmp_path, text)}
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, env=variables, capture_output=True, text=True)
    assert done.returncode == 128 + signal.SIGKILL, done.stderr
    assert "out of memory" in done.stderr
    assert "--mem-per-cpu" in done.stderr


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


def test_outputs_are_complete_with_every_result_and_no_checkpoint(paths):
    results = dict.fromkeys(paths)
    assert not are_complete({})
    write(paths[0])
    assert not are_complete(results)
    write(checkpoint_path(paths[1]))
    write(paths[1])
    assert not are_complete(results)
    checkpoint_path(paths[1]).unlink()
    assert are_complete(results)


def test_an_older_result_does_not_count(paths):
    write(paths[0])
    results = {paths[0]: file_identity(paths[0])}
    assert not are_complete(results)
    write(paths[0])
    assert are_complete(results)


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
