"""Calls of SLURM commands: state and requeue of the current job, and array limit."""

import os
import re
import subprocess
import time

from mu2mpi.core.text import print_messages

DEFAULT_MAX_ARRAY_TASKS = 1001  # Tasks of an array, by the default of SLURM's option MaxArraySize


def print_status(message: str) -> None:
    """Print a status message of `mu2mpi launch` on standard error."""
    print_messages(f"mu2mpi launch: {message}")


def job_id() -> str | None:
    """Id of the SLURM job or array task in which this process runs; None outside of SLURM."""
    # SLURM_JOB_ID of the last task is the id of the whole array, which a requeue by this id would include.
    array, task = (os.environ.get(f"SLURM_ARRAY_{name}_ID") for name in ("JOB", "TASK"))
    return f"{array}_{task}" if array and task else os.environ.get("SLURM_JOB_ID")


def requeue_count() -> int:
    """Read the number of times SLURM has requeued this job (SLURM_RESTART_COUNT)."""
    return int(os.environ.get("SLURM_RESTART_COUNT") or 0)


def termination_cause() -> str:
    """Cause of the termination of this job: "scheduler", "user", or "requeue" if it is already requeued."""
    fields = _slurm("scontrol", "show", "job", "-o", job_id() or "").stdout.split()
    state = dict(field.split("=", 1) for field in fields if "=" in field)
    if int(state.get("Restarts", 0)) > requeue_count():
        return "requeue"
    is_preempted = state.get("PreemptTime", "None") not in ("None", "N/A", "Unknown")
    return "scheduler" if is_preempted or state.get("Reason") == "TimeLimit" else "user"


def requeue_job(max_requeues: int) -> bool:
    """Requeue this SLURM job, at most `max_requeues` times; return whether it is requeued."""
    job, requeues = job_id(), requeue_count()
    if job is None:
        return False
    if requeues >= max_requeues:
        print_status(f"job {job} has reached --requeues {max_requeues}. Submit it again to resume.")
        return False
    print_status(f"requeueing job {job} ({requeues + 1} of at most {max_requeues} times)")
    for _ in range(3):
        done = _slurm("scontrol", "requeue", job)
        if done.returncode == 0 or termination_cause() == "requeue":
            return True
        time.sleep(1)
    print_status(f"SLURM does not requeue job {job}: {done.stderr.strip()}. Submit it again to resume.")
    return False


def is_out_of_memory() -> bool:
    """Whether the accounting of SLURM, if there is one, has steps of this job that ran out of memory."""
    job = job_id()
    return job is not None and "OUT_OF_ME" in _slurm("sacct", "-n", "-P", "-j", job, "-o", "State").stdout


def all_nodes_respond() -> bool:
    """Whether SLURM can start a process on each node of this job."""
    nodes = os.environ.get("SLURM_JOB_NUM_NODES", "1")
    if job_id() is None or nodes == "1":
        return True
    return _slurm("srun", "--overlap", "--mpi=none", "-K", "-N", nodes, "-n", nodes, "true").returncode == 0


def max_array_tasks() -> int:
    """Return the maximal number of tasks of a SLURM job array on this cluster, or else SLURM's default."""
    match = re.search(r"MaxArraySize\s*=\s*(\d+)", _slurm("scontrol", "show", "config").stdout)
    return int(match[1]) if match else DEFAULT_MAX_ARRAY_TASKS


def _slurm(*command: str) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))
