"""What is asked of SLURM, and handed to it."""

import os
import re
import subprocess

from mu2mpi.errors import InputError

MOST_TASKS = 1001
"""Tasks of an array that SLURM allows unless its configuration says otherwise."""

ANSWER_SECONDS = 60


def submit(script: str) -> str:
    """Hand a script to sbatch and return the number of the job; InputError if it takes none."""
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
    try:
        found = re.search(r"MaxArraySize\s*=\s*(\d+)", _answer("scontrol", "show", "config"))
    except InputError:
        found = None
    return int(found[1]) if found else MOST_TASKS


def task_states() -> dict[tuple[str, int], str]:
    """Return the state of each task of the user's that is in the queue, by job and index: 0 if no array."""
    answer = _answer("squeue", "-h", "-r", "-u", str(os.getuid()), "-o", "%F %K %T")
    rows = (line.split() for line in answer.splitlines())
    return {(job, int(index) if index.isdecimal() else 0): state for job, index, state in rows}


def _answer(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"{command[0]} does not answer here: {error}") from None
    if done.returncode != 0:
        raise InputError(f"{command[0]} ended with code {done.returncode}: {done.stderr.strip()}")
    return done.stdout
