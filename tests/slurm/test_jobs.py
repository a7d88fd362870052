"""The shipped job scripts, submitted to a real SLURM."""

import os
import re
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from launch import mu2mpi

from mu2mpi.results.reader import read_result

LONG = 'data = "synthetic"\nsamples = 400_000\nserver = "{server}"\nmachines = 2\nseed = 3\n'


def write_long_experiment(cluster, server="trusted") -> Path:
    path = cluster.folder / "long.toml"
    path.write_text(LONG.format(server=server))
    return path


def long_job(cluster) -> list[str | Path]:
    """Write the script of a job of some seconds on two ranks, and return what to submit."""
    config = write_long_experiment(cluster)
    script = mu2mpi("job", config.name, "-o", "out put/long.h5", cwd=cluster.folder)
    assert script.returncode == 0, script.stderr
    (cluster.folder / "long.sbatch").write_text(script.stdout)
    return ["long.sbatch"]


def unbroken(cluster) -> Path:
    path = cluster.folder / "unbroken.h5"
    done = mu2mpi("run", "--config", cluster.folder / "long.toml", "--output", path)
    assert done.returncode == 0, done.stderr
    return path


def same_history(a, b) -> bool:
    names = [name for name in a.history.columns() if name != "elapsed_seconds"]
    return all(getattr(a.history, n).tobytes() == getattr(b.history, n).tobytes() for n in names)


def is_running(cluster, job: str) -> bool:
    """Whether the rounds of a job have begun."""
    return " rounds, d = " in cluster.logs() and cluster.show(job)["JobState"] == "RUNNING"


def ranks_in(folder: Path) -> list[int]:
    """Return the ranks of the run that was started in a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (process / "cmdline").read_bytes().decode().split("\0")
            if words[1:4] == ["-m", "mu2mpi", "run"] and (process / "cwd").resolve() == folder.resolve():
                found.append(int(process.name))
    return found


def test_one_run(cluster):
    job = cluster.submit("jobs/run.sbatch")
    cluster.finish(job)
    assert cluster.show(job)["JobState"] == "COMPLETED", cluster.logs()
    result = read_result(cluster.folder / "runs" / "experiment.h5")
    assert result.environment["ranks"] == 2
    assert (cluster.folder / f"experiment-{job}.log").exists()


@pytest.mark.parametrize("launcher", ["srun --mpi=pmi2 --kill-on-bad-exit=1 -n 2", "srun --mpi=none -n 2"])
def test_a_launcher_of_the_users_choice(cluster, launcher, monkeypatch):
    monkeypatch.setenv("MU2MPI_LAUNCHER", launcher)
    job = cluster.submit("jobs/run.sbatch")
    cluster.finish(job)
    if "none" in launcher:
        # Silently, this would have been two runs on one rank each.
        assert cluster.show(job)["ExitCode"] == "2:0"
        assert "its ranks see 1 ranks" in cluster.logs()
        assert not (cluster.folder / "runs").exists()
    else:
        assert cluster.show(job)["JobState"] == "COMPLETED", cluster.logs()


def test_signal_requeue_and_resume(cluster):
    job = cluster.submit(*long_job(cluster))
    cluster.wait(lambda: is_running(cluster, job), "the first rounds")
    cluster.command("scancel", "--signal=USR1", "--batch", job)
    cluster.wait(lambda: "requeueing job" in cluster.logs(), "the requeue")
    assert (cluster.folder / "out put" / "long.h5.checkpoint").stat().st_mode & 0o777 == 0o600
    cluster.finish(job, requeues=1)
    assert cluster.show(job)["JobState"] == "COMPLETED", cluster.logs()
    assert "going on after round" in cluster.logs()
    found, expected = read_result(cluster.folder / "out put" / "long.h5"), read_result(unbroken(cluster))
    assert found.x.tobytes() == expected.x.tobytes()
    assert same_history(found, expected)
    assert [path.name for path in (cluster.folder / "out put").iterdir()] == ["long.h5"]


def test_preemption(cluster):
    job = cluster.submit("--partition=low", "--exclusive", *long_job(cluster))
    cluster.wait(lambda: is_running(cluster, job), "the first rounds")
    other = cluster.submit("--partition=high", "--exclusive", "--wrap=true")
    cluster.finish(other)
    assert cluster.show(other)["JobState"] == "COMPLETED"
    cluster.finish(job, requeues=1)
    assert cluster.show(job)["JobState"] == "COMPLETED", cluster.logs()
    assert cluster.show(job)["Restarts"] == "1"
    assert "going on after round" in cluster.logs()
    found, expected = read_result(cluster.folder / "out put" / "long.h5"), read_result(unbroken(cluster))
    assert found.x.tobytes() == expected.x.tobytes()


def test_preemption_by_cancelling_without_grace(cluster):
    job = cluster.submit("--partition=lowcancel", "--exclusive", *long_job(cluster))
    cluster.wait(lambda: is_running(cluster, job), "the first rounds")
    cluster.submit("--partition=high", "--exclusive", "--wrap=true")
    cluster.finish(job, requeues=1)
    assert cluster.show(job)["JobState"] == "COMPLETED", cluster.logs()
    assert "mu2mpi launch: requeueing job" in cluster.logs()
    found, expected = read_result(cluster.folder / "out put" / "long.h5"), read_result(unbroken(cluster))
    assert found.x.tobytes() == expected.x.tobytes()


def test_a_job_whose_ranks_are_killed_goes_on(cluster):
    job = cluster.submit(*long_job(cluster))
    cluster.wait(lambda: is_running(cluster, job), "the first rounds")
    for pid in ranks_in(cluster.folder):
        os.kill(pid, signal.SIGKILL)
    cluster.finish(job, requeues=1)
    assert cluster.show(job)["JobState"] == "COMPLETED", cluster.logs()
    assert "no word of how the run ended" in cluster.logs()
    found, expected = read_result(cluster.folder / "out put" / "long.h5"), read_result(unbroken(cluster))
    assert found.x.tobytes() == expected.x.tobytes()
    assert [path.name for path in (cluster.folder / "out put").iterdir()] == ["long.h5"]


def test_a_job_with_room_for_several_ranks_says_how_many(cluster):
    (cluster.folder / "many.sbatch").write_text("#!/bin/bash\n.venv/bin/mu2mpi launch info\n")
    job = cluster.submit("--exclusive", "--output=many.log", "many.sbatch")
    cluster.finish(job)
    assert cluster.show(job)["ExitCode"] == "2:0"
    assert "does not say how many to start: submit it with --ntasks=N" in cluster.logs()


def test_requeues_are_bounded(cluster):
    script = cluster.folder / long_job(cluster)[0]
    script.write_text(script.read_text().replace("mu2mpi launch", "mu2mpi launch --requeues 0"))
    job = cluster.submit(script)
    cluster.wait(lambda: is_running(cluster, job), "the first rounds")
    cluster.command("scancel", "--signal=USR1", "--batch", job)
    cluster.finish(job)
    assert cluster.show(job)["ExitCode"] == "75:0"
    assert "which is enough" in cluster.logs()


def test_cancelling_leaves_no_half_written_file(cluster):
    job = cluster.submit(*long_job(cluster))
    cluster.wait(lambda: is_running(cluster, job), "the first rounds")
    cluster.command("scancel", job)
    cluster.finish(job)
    names = {path.name for path in (cluster.folder / "out put").iterdir()}
    assert names <= {"long.h5.checkpoint", "long.h5.checkpoint.previous"}


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
    assert "untrusted_seed-2.h5 is not an HDF5 file" in (cluster.folder / f"tables-{job}_1.log").read_text()
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
    assert "0 to go" in (cluster.folder / f"tables-{again}_0.log").read_text()


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


def test_job_submit(cluster):
    said = job(cluster, "jobs/experiment.toml", "--submit", "--time=00:05:00", "--sbatch", "comment=a 'b' #c")
    number = said.split("Submitted batch job ")[1].split()[0]
    cluster.finish(number)
    assert cluster.show(number)["JobState"] == "COMPLETED", cluster.logs()
    assert "Comment=a 'b' #c" in cluster.command("scontrol", "show", "job", number)


PACKED = 'data = "synthetic"\nsamples = 130_000\nserver = ["untrusted", "trusted"]\nseed = [1, 2, 3]\n'


def test_a_packed_sweep_with_a_task_that_is_killed(cluster):
    """A tenth of ten seconds holds some of the six runs; of the tasks, one at a time, the second dies."""
    (cluster.folder / "packed.toml").write_text(PACKED)
    asked = ["--sbatch=time=0:10", "--array-limit=1", "--checkpoint-every=1", "--after-table", "--submit"]
    sweep = ["packed.toml", "-o", "my runs"]
    number = job(cluster, *sweep, *asked).split()[-1]
    tasks = len(cluster.command("squeue", "-h", "-r", "-j", number).splitlines())
    assert 1 < tasks < 6
    # A look takes about as long as a run, and the first task may have begun.
    status = job(cluster, *sweep, "--status")
    assert re.search(r" 0 done, (0 running, 6|[1-5] running, [1-5]) left, 0 failed", status)
    cluster.wait(lambda: "6 left" not in job(cluster, *sweep, "--status"), "the first run")
    cluster.command("scancel", f"{number}_1")
    table = cluster.folder / f"table-{number}.txt"
    cluster.wait(lambda: table.exists() and "Test loss" in table.read_text(), "the table")
    # By then the second may have done some of its own runs, but not the last.
    of_second = range(1, 6, tasks)
    found = job(cluster, *sweep, "--status")
    counted = re.search(r"(\d) done, 0 running, 0 left, (\d) failed", found)
    assert counted, found
    done, failed = map(int, counted.groups())
    assert done + failed == 6
    assert 1 <= failed <= len(of_second)
    assert f"{('untrusted', 'trusted')[of_second[-1] // 3]}_seed-{of_second[-1] % 3 + 1}.h5" in found
    again = job(cluster, *sweep, "--after-table", "--submit").split()[-1]
    second = cluster.folder / f"table-{again}.txt"
    cluster.wait(lambda: second.exists() and "Test loss" in second.read_text(), "the second table")
    assert "6 done, 0 running, 0 left, 0 failed" in job(cluster, *sweep, "--status")
    assert len(list((cluster.folder / "my runs").glob("*.h5"))) == 6
