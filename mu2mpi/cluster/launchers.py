"""What starts ranks that find each other: tried on a tiny program."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from mu2mpi.errors import InputError

LAUNCHER_VARIABLE = "MU2MPI_LAUNCHER"
# One write a rank, since launchers mix what ranks write in pieces.
PROBE = "import os; from mpi4py import MPI; os.write(1, b'%d\\n' % MPI.COMM_WORLD.Get_size())"
PROBE_SECONDS = 60

# Open MPI from PyPI binds ranks to cores that a job may not have, and waits for messages in a busy loop.
RANK_VARIABLES = {
    "OMP_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}


def find_launcher(ranks: int, environment: Mapping[str, str]) -> list[str]:
    """Return the first command that starts this many ranks which find each other; InputError if none does."""
    if ranks == 1:
        return []
    lines = [f"no launcher starts {ranks} ranks that find each other:"]
    for candidate in _candidates(ranks):
        problem = _problem(candidate, ranks, environment)
        if problem is None:
            return candidate
        lines.append(f"  {shlex.join(candidate)}: {problem}")
        say(f"not with {shlex.join(candidate)}: {problem}")
    way_out = f"Set {LAUNCHER_VARIABLE} to the command that does, such as 'srun --mpi=pmix -n {ranks}'"
    raise InputError("\n".join([*lines, way_out]))


def _candidates(ranks: int) -> list[list[str]]:
    chosen = os.environ.get(LAUNCHER_VARIABLE)
    if chosen:
        try:
            return [shlex.split(chosen)]
        except ValueError as error:
            raise InputError(f"{LAUNCHER_VARIABLE} is no command: {error}") from None
    ours = Path(sys.executable).parent / "mpirun"
    mpirun = str(ours) if ours.exists() else shutil.which("mpirun")
    candidates = [[mpirun, "-n", str(ranks)]] if mpirun else []
    if shutil.which("srun") and "SLURM_JOB_ID" in os.environ:
        kinds = ("--mpi=pmix", "--mpi=pmi2", "--mpi=none")
        candidates += [["srun", kind, "--kill-on-bad-exit=1", "-n", str(ranks)] for kind in kinds]
    return candidates


def _problem(launcher: Sequence[str], ranks: int, environment: Mapping[str, str]) -> str | None:
    """Try a launcher on a tiny program; return what is wrong with it, or None."""
    command = [*launcher, sys.executable, "-c", PROBE]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_SECONDS, env=environment)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode != 0:
        return f"it ends with code {done.returncode}"
    sizes = done.stdout.split()
    if sizes != [str(ranks)] * ranks:
        return f"its ranks see {', '.join(sorted(set(sizes))) or 'no'} ranks"
    return None


def say(message: str) -> None:
    """Tell on standard error what is done."""
    print(f"mu2mpi launch: {message}", file=sys.stderr, flush=True)
