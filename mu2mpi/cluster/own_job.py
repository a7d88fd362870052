"""What a job of SLURM asks about itself: why it ends, whether its nodes answer; and to start again."""

import os
import subprocess
import time
from collections.abc import Sequence

from mu2mpi.cluster.allocation import number_in
from mu2mpi.cluster.launchers import say

ANSWER_SECONDS = 30
TRIES = 3


def job_number() -> str | None:
    """Return the number of this SLURM job, or None outside of one."""
    # The last task of an array has the array's number, and would take the others along.
    if "SLURM_ARRAY_TASK_ID" in os.environ:
        return f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    return os.environ.get("SLURM_JOB_ID")


def restarts() -> int:
    """Return how often this job was put back into the queue before this start."""
    return number_in("SLURM_RESTART_COUNT", 0)


def was_requeued(facts: dict[str, str]) -> bool:
    """Return whether the job is in the queue again by these `facts`, while it still ends."""
    return facts.get("Restarts", "").isdecimal() and int(facts["Restarts"]) > restarts()


def was_preempted(facts: dict[str, str]) -> bool:
    """Return whether SLURM ends the job by these `facts` for another one, or since its time is up."""
    # While it ends, the state of a job is COMPLETING, whatever ended it.
    is_preempted = facts.get("PreemptTime", "None") not in ("None", "N/A", "Unknown")
    return is_preempted or facts.get("Reason") == "TimeLimit"


def facts_of_job() -> dict[str, str]:
    """Return what SLURM tells of this job; nothing if it does not answer."""
    done = _run(["scontrol", "show", "job", "-o", job_number() or ""])
    words = done.stdout.split() if done else []
    return dict(word.split("=", 1) for word in words if "=" in word)


def requeue(limit: int) -> bool:
    """Put this job back into the queue, unless it was there often enough; return whether it is there."""
    job, before = job_number(), restarts()
    if job is None:
        return False
    if before >= limit:
        say(f"job {job} was requeued {before} times, which is enough; submit it again to go on")
        return False
    say(f"requeueing job {job} ({before + 1} of at most {limit} times)")
    for _ in range(TRIES):
        done = _run(["scontrol", "requeue", job])
        if (done and done.returncode == 0) or was_requeued(facts_of_job()):
            return True
        time.sleep(1)
    say(f"SLURM does not requeue job {job}: {done.stderr.strip() if done else 'no answer'}; submit it again")
    return False


def nodes_answer() -> bool:
    """Return whether all nodes of this job start a process."""
    nodes = os.environ.get("SLURM_JOB_NUM_NODES", "1")
    if job_number() is None or nodes == "1":
        return True
    done = _run(["srun", "--overlap", "--mpi=none", "-K", "-N", nodes, "-n", nodes, "true"])
    return done is not None and done.returncode == 0


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str] | None:
    """Run a command of SLURM; None if it is not there, or takes too long."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
