"""The shipped job scripts on a real SLURM cluster."""

import os
import shlex
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from helpers.launch import mu2mpi

from mu2mpi.results.checkpoint import read_checkpoint
from mu2mpi.results.reader import read_result
from mu2mpi.results.records import checkpoint_path

LONG = 'data = "synthetic"\nsamples = 400_000\nserver = "trusted"\nmachines = 2\nseed = 3\n'


def start_long_job(cluster, *words: str, command: str = "mu2mpi launch") -> str:
    """Submit a job of some seconds on two ranks, and return its id once the first checkpoint is written."""
    (cluster.folder / "long.toml").write_text(LONG)
    script = mu2mpi("job", "long.toml", "--checkpoint-every=1", "-o", "out put/long.h5", cwd=cluster.folder)
    assert script.returncode == 0, script.stderr
    (cluster.folder / "long.sbatch").write_text(script.stdout.replace("mu2mpi launch", command))
    number = cluster.submit(*words, "long.sbatch")
    checkpoint = checkpoint_path(cluster.folder / "out put" / "long.h5")
    cluster.wait(lambda: checkpoint.exists() and read_checkpoint(checkpoint).rounds_done > 0, "some rounds")
    return number


def assert_same_as_uninterrupted(cluster, job: str) -> None:
    """Check that a job that was requeued once has the same result bits as an uninterrupted run."""
    cluster.finish(job, requeues=1)
    assert cluster.show(job)["JobState"] == "COMPLETED", cluster.logs()
    assert cluster.show(job)["Restarts"] == "1"
    done = mu2mpi("run", "--config", "long.toml", "--output", "unbroken.h5", cwd=cluster.folder)
    assert done.returncode == 0, done.stderr
    found, expected = (read_result(cluster.folder / name) for name in ("out put/long.h5", "unbroken.h5"))
    assert found.x.tobytes() == expected.x.tobytes()
    for name in set(found.history.column_names()) - {"elapsed_seconds"}:
        assert getattr(found.history, name).tobytes() == getattr(expected.history, name).tobytes(), name
    assert [path.name for path in (cluster.folder / "out put").iterdir()] == ["long.h5"]


def processes_in(folder: Path, word: str) -> list[int]:
    """Return the processes that were started in a folder with this word early in their command."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (process / "cmdline").read_bytes().decode().split("\0")[:4]
            if word in " ".join(words) and (process / "cwd").resolve() == folder.resolve():
                found.append(int(process.name))
    return found


def test_one_run(cluster):
    job = cluster.submit("jobs/run.sbatch")
    cluster.finish(job)
    assert cluster.show(job)["JobState"] == "COMPLETED", cluster.logs()
    assert read_result(cluster.folder / "runs" / "experiment.h5").environment["ranks"] == 2


@pytest.mark.parametrize("launcher", ["srun --mpi=pmi2 --kill-on-bad-exit=1 -n {n}", "srun --mpi=none -n 2"])
def test_a_launcher_of_the_users_choice(cluster, launcher, monkeypatch):
    monkeypatch.setenv("MU2MPI_LAUNCHER", launcher)
    job = cluster.submit("jobs/run.sbatch")
    cluster.finish(job)
    if "none" in launcher:
        # Silently, this would have been two runs on one rank each.
        assert cluster.show(job)["ExitCode"] == "2:0"
        assert not (cluster.folder / "runs").exists()
    else:
        assert cluster.show(job)["JobState"] == "COMPLETED", cluster.logs()


def test_signal_requeue_and_resume(cluster):
    job = start_long_job(cluster)
    cluster.command("scancel", "--signal=USR1", "--batch", job)
    checkpoint = checkpoint_path(cluster.folder / "out put" / "long.h5")
    cluster.wait(lambda: int(cluster.show(job)["Restarts"]) == 1, "the requeue")
    assert checkpoint.stat().st_mode & 0o777 == 0o600
    assert_same_as_uninterrupted(cluster, job)


@pytest.mark.parametrize("partition", ["low", "lowcancel"])
def test_preemption_by_a_signal_and_by_cancelling_without_grace(cluster, partition):
    job = start_long_job(cluster, f"--partition={partition}", "--exclusive")
    cluster.submit("--partition=high", "--exclusive", "--wrap=true")
    assert_same_as_uninterrupted(cluster, job)


def test_a_job_whose_ranks_are_killed_resumes(cluster):
    job = start_long_job(cluster)
    for pid in processes_in(cluster.folder, "-m mu2mpi run"):
        os.kill(pid, signal.SIGKILL)
    assert_same_as_uninterrupted(cluster, job)


def test_a_job_whose_launcher_is_killed_resumes(cluster):
    job = start_long_job(cluster)
    for pid in processes_in(cluster.folder, "/mpirun "):
        os.kill(pid, signal.SIGKILL)
    assert_same_as_uninterrupted(cluster, job)


def test_a_job_with_several_tasks_per_node_needs_a_number_of_ranks(cluster):
    (cluster.folder / "many.sbatch").write_text("#!/bin/bash\n.venv/bin/mu2mpi launch info\n")
    job = cluster.submit("--exclusive", "--output=many.log", "many.sbatch")
    cluster.finish(job)
    assert cluster.show(job)["ExitCode"] == "2:0"


def test_requeues_are_bounded(cluster):
    job = start_long_job(cluster, command="mu2mpi launch --requeues 0")
    cluster.command("scancel", "--signal=USR1", "--batch", job)
    cluster.finish(job)
    assert cluster.show(job)["ExitCode"] == "75:0"


def test_cancelling_leaves_no_half_written_file_and_requeues_nothing(cluster):
    job = start_long_job(cluster)
    cluster.command("scancel", job)
    cluster.finish(job)
    assert cluster.show(job)["Restarts"] == "0"
    names = {path.name for path in (cluster.folder / "out put").iterdir()}
    assert names <= {"long.h5.checkpoint", "long.h5.checkpoint.previous", "long.h5.lock"}


SWEEP = 'machines = 2\nrounds = 20\nserver = ["untrusted", "trusted"]\nseed = [1, 2]\n'


def test_array_with_one_failing_task_and_a_second_submission(cluster):
    (cluster.folder / "sweep.toml").write_text(SWEEP)
    results = cluster.folder / "my results"
    results.mkdir()
    obstacle = results / "untrusted_seed-2.h5"
    obstacle.write_text("not a result")
    arguments = ["--array=0-3", "jobs/tables.sbatch", "sweep.toml", "my results"]
    job = cluster.submit(*arguments)
    table = cluster.folder / f"table-{job}.txt"
    cluster.wait(lambda: table.exists() and "Test loss" in table.read_text(), "the table")
    assert sorted(path.name for path in results.glob("*.h5")) == [
        "trusted_seed-1.h5",
        "trusted_seed-2.h5",
        "untrusted_seed-1.h5",
        "untrusted_seed-2.h5",
    ]
    states = cluster.command("squeue", "-h", "-t", "all", "-r", "-j", job, "-o", "%K %T").split("\n")
    assert sorted(line for line in states if line) == [
        "0 COMPLETED",
        "1 FAILED",
        "2 COMPLETED",
        "3 COMPLETED",
    ]
    obstacle.unlink()
    before = {path: path.stat().st_mtime_ns for path in results.glob("*.h5")}
    again = cluster.submit(*arguments)
    second = cluster.folder / f"table-{again}.txt"
    cluster.wait(lambda: second.exists() and "Test loss" in second.read_text(), "the second table")
    assert read_result(obstacle).experiment.seed == 2
    assert all(path.stat().st_mtime_ns == at for path, at in before.items())


def test_scaling(cluster, monkeypatch):
    monkeypatch.setenv("ROUNDS", "3")
    job = cluster.submit("--ntasks=2", "jobs/scaling.sbatch", "runs/sc aling")
    cluster.finish(job)
    assert cluster.show(job)["JobState"] == "COMPLETED", cluster.logs()
    results = {path.name: read_result(path) for path in (cluster.folder / "runs" / "sc aling").iterdir()}
    assert {name: result.environment["ranks"] for name, result in results.items()} == {
        f"{machines}-machines-on-{ranks}-ranks-repeat-{repeat}.h5": ranks
        for machines, ranks in ((64, 1), (64, 2), (4, 1), (8, 2))
        for repeat in (1, 2, 3)
    }
    assert all(result.environment["cores"] >= 1 for result in results.values())
    assert not any(result.timing["data"].any() for result in results.values())


def job(cluster, *words) -> str:
    done = mu2mpi("job", *words, cwd=cluster.folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def submit_job(cluster, *words) -> str:
    """Submit the script that `mu2mpi job` prints, and return the job id."""
    (cluster.folder / "job.sbatch").write_text(job(cluster, *words))
    return cluster.submit("job.sbatch")


def test_job(cluster):
    number = submit_job(cluster, "jobs/experiment.toml", "--time=00:05:00", "--sbatch", "comment=a 'b' #c")
    cluster.finish(number)
    assert cluster.show(number)["JobState"] == "COMPLETED", cluster.logs()
    assert "Comment=a 'b' #c" in cluster.command("scontrol", "show", "job", number)
    # A set-up that fails ends the job, whatever environment it has inherited.
    for failing in ("--setup=module load nosuch", "--environment=absent"):
        failed = submit_job(cluster, "jobs/experiment.toml", "-o", "other.h5", failing)
        cluster.finish(failed)
        assert cluster.show(failed)["JobState"] == "FAILED"
    assert not (cluster.folder / "other.h5").exists()


def table_after(cluster, number):
    """Wait for the table that a job prints once all tasks of another have ended."""
    table = cluster.folder / f"table-{number}.txt"
    command = f"{shlex.quote(sys.executable)} -m mu2mpi table 'my runs'"
    where = ["-n1", "-D", cluster.folder, f"--output={table}", f"--dependency=afterany:{number}"]
    cluster.command("sbatch", *where, f"--wrap={command}")
    cluster.wait(lambda: table.exists() and "Test loss" in table.read_text(), "the table")


PACKED = 'data = "synthetic"\nsamples = 130_000\nserver = ["untrusted", "trusted"]\nseed = [1, 2, 3]\n'


def test_a_packed_sweep_with_a_task_that_is_killed(cluster):
    """A tenth of ten seconds fits some of the six runs. The second task is cancelled."""
    (cluster.folder / "packed.toml").write_text(PACKED)
    times = ["--sbatch=time=0:10", "--signal-seconds=9", "--checkpoint-every=1"]
    sweep = ["packed.toml", "-o", "my runs"]
    number = submit_job(cluster, *sweep, *times, "--array-limit=1")
    tasks = len(cluster.command("squeue", "-h", "-r", "-j", number).splitlines())
    assert 1 < tasks < 6
    results = cluster.folder / "my runs"
    cluster.wait(lambda: list(results.glob("*.h5*")), "the first run")
    cluster.command("scancel", f"{number}_1")
    table_after(cluster, number)
    # The second task may have completed some of its runs before the cancellation, but not the last.
    of_second = range(1, 6, tasks)
    assert 1 <= 6 - len(list(results.glob("*.h5"))) <= len(of_second)
    last = f"{('untrusted', 'trusted')[of_second[-1] // 3]}_seed-{of_second[-1] % 3 + 1}.h5"
    assert not (results / last).exists()
    table_after(cluster, submit_job(cluster, *sweep))
    assert len(list(results.glob("*.h5"))) == 6
