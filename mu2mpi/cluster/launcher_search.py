"""Search for a launcher that starts connected ranks: probe of mpirun and srun."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from mu2mpi.cluster.slurm import print_status
from mu2mpi.core.errors import InputError

LAUNCHER_VARIABLE = "MU2MPI_LAUNCHER"

# Program that prints the size of COMM_WORLD on each rank, by one write, since launchers interleave output.
PROBE_SCRIPT = "import os; from mpi4py import MPI; os.write(1, b'%d\\n' % MPI.COMM_WORLD.Get_size())"
MAX_LAUNCHER_PROBE_SECONDS = 10

# Environment variables that ranks on all hosts need; launchers differ in which ones they forward.
FORWARDED_VARIABLE_RE = re.compile("MU2MPI_.*|PYTHONPATH|(OMP|NUMBA)_NUM_THREADS|NUMBA_CACHE_DIR")


def find_launcher(ranks: int, environment: Mapping[str, str]) -> list[str]:
    """Find a launcher command that starts `ranks` ranks in one COMM_WORLD; InputError if there is none."""
    if ranks == 1:
        return []
    for _ in range(2):  # The first probe may be slow, since no file is in memory yet.
        problems = []
        for command in _candidate_commands():
            launcher = _split(command, ranks)
            problem = launcher_problem(launcher, ranks, environment)
            if problem is None:
                return launcher
            problems.append(f"{shlex.join(launcher)}: {problem}")
            print_status(f"rejected launcher {problems[-1].splitlines()[0]}")
    advice = f"Set {LAUNCHER_VARIABLE} to a command that does, such as 'srun --mpi=pmix -n {{n}}'."
    listed = "\n  ".join([f"no launcher starts {ranks} connected ranks:", *problems])
    raise InputError(f"{listed}\n{advice}")


def env_prefix(environment: Mapping[str, str]) -> list[str]:
    """Command prefix that sets the environment variables of the ranks."""
    forwarded = {name: value for name, value in environment.items() if FORWARDED_VARIABLE_RE.fullmatch(name)}
    return ["env", *(f"{name}={value}" for name, value in forwarded.items())]


def launcher_problem(launcher: Sequence[str], ranks: int, environment: Mapping[str, str]) -> str | None:
    """Probe a launcher: None if it starts `ranks` connected ranks, else a description of the problem."""
    command = [*launcher, *env_prefix(environment), sys.executable, "-c", PROBE_SCRIPT]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=MAX_LAUNCHER_PROBE_SECONDS, env=environment
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    sizes = done.stdout.split()
    if done.returncode == 0 and sizes == [str(ranks)] * ranks:
        return None
    problem = f"its ranks see {', '.join(sorted(set(sizes))) or 'no'} ranks"
    if done.returncode != 0:
        problem = f"it ends with code {done.returncode}"
    return "\n    ".join([problem, *[line for line in done.stderr.splitlines() if line.strip()][-12:]])


def _candidate_commands() -> list[str]:
    """Shell commands of the candidates, with {n} for the number of ranks."""
    if chosen := os.environ.get(LAUNCHER_VARIABLE):
        return [chosen]
    local_mpirun = Path(sys.executable).parent / "mpirun"
    mpirun = str(local_mpirun) if local_mpirun.exists() else shutil.which("mpirun")
    commands = [f"{shlex.quote(mpirun)} -n {{n}}"] if mpirun else []
    if shutil.which("srun") and "SLURM_JOB_ID" in os.environ:
        mpi_types = ("pmix", "pmi2", "none")
        commands += [f"srun --mpi={mpi_type} --kill-on-bad-exit=1 -n {{n}}" for mpi_type in mpi_types]
    return commands


def _split(command: str, ranks: int) -> list[str]:
    try:
        return [word.replace("{n}", str(ranks)) for word in shlex.split(command)]
    except ValueError as error:
        raise InputError(f"{LAUNCHER_VARIABLE} is no command: {error}.") from None
