"""What the scheduler around us has given to this job: how many ranks, and on which hosts."""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mu2mpi.errors import InputError

RANKS_VARIABLE = "MU2MPI_RANKS"


@dataclass(frozen=True)
class Scheduler:
    """Where a scheduler says what a job has, in variables of the environment."""

    name: str
    marks: Sequence[str]  # variables that only its jobs have
    ranks: str  # variable with the number of ranks
    many: Callable[[], bool]  # whether there is room for several ranks, if there is no such variable
    way_out: str
    hosts: str = ""  # variable that names a file with a line for each rank, the name of its host


def _slurm_has_many() -> bool:
    # Such as 8, 4(x2) or 3,1; a job that asks for 8 cores for one task has 1.
    return os.environ.get("SLURM_TASKS_PER_NODE", "1") != "1"


def _pbs_has_many() -> bool:
    # A chunk for which no number of ranks is asked has a single line in the file of hosts.
    return len(_lines("PBS_NODEFILE")) <= 1 < number_in("NCPUS", 1)


def _lsf_has_many() -> bool:
    return len(os.environ.get("LSB_HOSTS", "").split()) > 1


SCHEDULERS = (
    Scheduler("SLURM", ["SLURM_JOB_ID"], "SLURM_NTASKS", _slurm_has_many, "--ntasks=N"),
    Scheduler("PBS", ["PBS_JOBID"], "PBS_NP", _pbs_has_many, "mpiprocs=N", "PBS_NODEFILE"),
    Scheduler("LSF", ["LSB_JOBID"], "LSB_DJOB_NUMPROC", _lsf_has_many, "-n N", "LSB_DJOB_HOSTFILE"),
    Scheduler("Flux", ["FLUX_JOB_ID", "FLUX_URI"], "FLUX_JOB_SIZE", lambda: True, "--ntasks=N"),
)


def _scheduler() -> Scheduler | None:
    """Return the scheduler whose job this is, or None."""
    return next((each for each in SCHEDULERS if any(map(os.environ.get, each.marks))), None)


def ranks_of_job() -> int:
    """Return the number of ranks that the user's variable or the scheduler names, and 1 outside of jobs.

    Raises InputError in a job that has room for several but does not say how many are to be started.
    """
    if os.environ.get(RANKS_VARIABLE):
        return number_in(RANKS_VARIABLE, 1)
    scheduler = _scheduler()
    if scheduler is None:
        return 1
    if os.environ.get(scheduler.ranks):
        return number_in(scheduler.ranks, 1)
    if scheduler.many():
        raise InputError(
            f"this {scheduler.name} job has room for several ranks but does not say how many to start: "
            f"submit it with {scheduler.way_out}, set {RANKS_VARIABLE}, or call mu2mpi launch --ranks N"
        )
    return max(1, len(_lines(scheduler.hosts)))


def hosts_of_job(ranks: int) -> tuple[str | None, int]:
    """Return the file that names the hosts of this job, if several, and how many these ranks need."""
    scheduler = _scheduler()
    lines = _lines(scheduler.hosts) if scheduler else []
    if scheduler is None or len({*lines}) < 2:
        return None, 1
    return os.environ[scheduler.hosts], len({*lines[:ranks]})


def number_in(variable: str, least: int) -> int:
    """Return the number in a variable of the environment; by default, and at least, this."""
    text = os.environ.get(variable) or str(least)
    if not text.isdecimal() or int(text) < least:
        raise InputError(f"{variable} is {text!r}, and no number of at least {least}")
    return int(text)


def _lines(variable: str) -> list[str]:
    """Return the lines of the file that a variable names, or none."""
    with suppress(OSError, KeyError, UnicodeDecodeError):
        return Path(os.environ[variable]).read_text("utf-8").split()
    return []
