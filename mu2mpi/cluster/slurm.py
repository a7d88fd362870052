"""The commands of SLURM: for the job around this process, and for jobs that are submitted."""

import os
import re
import subprocess
import sys
import time

from mu2mpi.core.errors import InputError

MOST_TASKS = 1001  # of an array, unless SLURM's configuration says otherwise


def say(message: str) -> None:
    """Print what `mu2mpi launch` does on standard error."""
    print(f"mu2mpi launch: {message}", file=sys.stderr, flush=True)


def job_number() -> str | None:
    """Return the number of the SLURM job around this process, or None outside of one."""
    # The last task of an array has the array's number, and would take the others along.
    if "SLURM_ARRAY_TASK_ID" in os.environ:
        return f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    return os.environ.get("SLURM_JOB_ID")


def restarts() -> int:
    """Return how often this job was put back into the queue before this start."""
    return int(os.environ.get("SLURM_RESTART_COUNT") or 0)


def who_ends() -> str:
    """Return who ends this job: "the scheduler", "a person", or "a requeue" if it is in the queue again."""
    words = _run("scontrol", "show", "job", "-o", job_number() or "").stdout.split()
    facts = dict(word.split("=", 1) for word in words if "=" in word)
    if int(facts.get("Restarts", 0)) > restarts():
        return "a requeue"
    # While it ends, the state of a job is COMPLETING, whatever ended it.
    is_preempted = facts.get("PreemptTime", "None") not in ("None", "N/A", "Unknown")
    return "the scheduler" if is_preempted or facts.get("Reason") == "TimeLimit" else "a person"


def requeue(limit: int) -> bool:
    """Put this job back into the queue, unless it was there often enough; return whether it is there."""
    job, before = job_number(), restarts()
    if job is None:
        return False
    if before >= limit:
        say(f"job {job} was requeued {before} times, which is enough; submit it again to go on")
        return False
    say(f"requeueing job {job} ({before + 1} of at most {limit} times)")
    for _ in range(3):
        done = _run("scontrol", "requeue", job)
        if done.returncode == 0 or who_ends() == "a requeue":
            return True
        time.sleep(1)
    say(f"SLURM does not requeue job {job}: {done.stderr.strip()}; submit it again")
    return False


def nodes_answer() -> bool:
    """Return whether all nodes of this job start a process."""
    nodes = os.environ.get("SLURM_JOB_NUM_NODES", "1")
    if job_number() is None or nodes == "1":
        return True
    return _run("srun", "--overlap", "--mpi=none", "-K", "-N", nodes, "-n", nodes, "true").returncode == 0


def submit(script: str) -> str:
    """Submit a script with sbatch and return the number of the job; InputError if there is none."""
    try:
        done = subprocess.run(["sbatch"], input=script, text=True, check=True, stdout=subprocess.PIPE)
    except FileNotFoundError:
        raise InputError("there is no sbatch here; submit the script where there is") from None
    except subprocess.CalledProcessError as error:
        raise InputError(f"sbatch ended with code {error.returncode}") from None
    found = re.search(r"Submitted batch job (\d+)", done.stdout)
    if found is None:
        raise InputError(f"sbatch gave no number of a job, but said: {done.stdout.strip()!r}")
    return found[1]


def most_tasks() -> int:
    """Return how many tasks an array may have here, or what is usual where SLURM does not answer."""
    found = re.search(r"MaxArraySize\s*=\s*(\d+)", _run("scontrol", "show", "config").stdout)
    return int(found[1]) if found else MOST_TASKS


def task_states() -> dict[tuple[str, int], str]:
    """Return the states of the user's tasks in the queue by job and index, which is 0 without an array."""
    done = _run("squeue", "-h", "-r", "-u", str(os.getuid()), "-o", "%F %K %T")
    if done.returncode != 0:
        raise InputError(f"squeue does not answer here: {done.stderr.strip()}")
    rows = (line.split() for line in done.stdout.splitlines())
    return {(job, int(index) if index.isdecimal() else 0): state for job, index, state in rows}


def _run(*command: str) -> "subprocess.CompletedProcess[str]":
    """Run a command of SLURM, which fails as well if it is not there or does not end in 30 seconds."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))
