"""The number of ranks of a job, and the launcher that starts them: tried on a tiny program."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from mu2mpi.errors import InputError

RANKS_VARIABLE, LAUNCHER_VARIABLE = "MU2MPI_RANKS", "MU2MPI_LAUNCHER"

# One write a rank, since launchers mix what ranks write in pieces.
PROBE = "import os; from mpi4py import MPI; os.write(1, b'%d\\n' % MPI.COMM_WORLD.Get_size())"
PROBE_SECONDS = 60

# Of these, launchers pass on to other hosts what they happen to.
CARRIED = re.compile("MU2MPI_.*|PYTHONPATH|(OMP|NUMBA)_NUM_THREADS")

# Open MPI from PyPI binds ranks to cores that a job may not have, and waits for messages in a busy loop.
RANK_VARIABLES = {
    "OMP_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}


def ranks_of_job() -> int:
    """Return the number of ranks by MU2MPI_RANKS or the SLURM job; 1 outside of jobs."""
    in_job = bool(os.environ.get("SLURM_JOB_ID"))
    for name in (RANKS_VARIABLE, "SLURM_NTASKS") if in_job else (RANKS_VARIABLE,):
        if text := os.environ.get(name):
            if not text.isdecimal() or int(text) < 1:
                raise InputError(f"{name} is {text!r}: set it to a number of at least 1")
            return int(text)
    # Such as 8, 4(x2) or 3,1; a job that asks for 8 cores for one task has 1.
    if in_job and os.environ.get("SLURM_TASKS_PER_NODE", "1") != "1":
        raise InputError(
            "this SLURM job has room for several ranks but does not say how many to start: submit it with "
            f"--ntasks=N, set {RANKS_VARIABLE}, or call mu2mpi launch --ranks N"
        )
    return 1


def find_launcher(ranks: int, environment: Mapping[str, str]) -> list[str]:
    """Return the first command that starts this many ranks which find each other; InputError if none does."""
    if ranks == 1:
        return []
    # A second time, since a probe may have met the loss of a node, or of a process.
    for _ in range(2):
        problems = []
        for candidate in _candidates(ranks):
            problem = _problem(candidate, ranks, environment)
            if problem is None:
                return candidate
            problems.append(f"{shlex.join(candidate)}: {problem}")
            say(f"not with {problems[-1].splitlines()[0]}")
    way_out = f"Set {LAUNCHER_VARIABLE} to the command that does, such as 'srun --mpi=pmix -n {ranks}'"
    listed = "\n  ".join([f"no launcher starts {ranks} ranks that find each other:", *problems])
    raise InputError(f"{listed}\n{way_out}")


def carried(environment: Mapping[str, str]) -> list[str]:
    """Return the beginning of a command that gives ranks on all hosts what they need of this environment."""
    return ["env", *(f"{name}={value}" for name, value in environment.items() if CARRIED.fullmatch(name))]


def _candidates(ranks: int) -> list[list[str]]:
    if chosen := os.environ.get(LAUNCHER_VARIABLE):
        try:
            return [shlex.split(chosen)]
        except ValueError as error:
            raise InputError(f"{LAUNCHER_VARIABLE} is no command: {error}") from None
    ours, count = Path(sys.executable).parent / "mpirun", ["-n", str(ranks)]
    mpirun = str(ours) if ours.exists() else shutil.which("mpirun")
    candidates = [[mpirun, *count]] if mpirun else []
    if shutil.which("srun") and "SLURM_JOB_ID" in os.environ:
        kinds = ("--mpi=pmix", "--mpi=pmi2", "--mpi=none")
        candidates += [["srun", kind, "--kill-on-bad-exit=1", *count] for kind in kinds]
    return candidates


def _problem(launcher: Sequence[str], ranks: int, environment: Mapping[str, str]) -> str | None:
    """Try a launcher on a tiny program; return what is wrong with it and what it printed last, or None."""
    command = [*launcher, *carried(environment), sys.executable, "-c", PROBE]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_SECONDS, env=environment)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    sizes = done.stdout.split()
    if done.returncode == 0 and sizes == [str(ranks)] * ranks:
        return None
    what = f"its ranks see {', '.join(sorted(set(sizes))) or 'no'} ranks"
    if done.returncode != 0:
        what = f"it ends with code {done.returncode}"
    return "\n    ".join([what, *[line for line in done.stderr.splitlines() if line.strip()][-12:]])


def say(message: str) -> None:
    """Print what `mu2mpi launch` does on standard error."""
    print(f"mu2mpi launch: {message}", file=sys.stderr, flush=True)
