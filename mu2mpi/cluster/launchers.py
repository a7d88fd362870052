"""What starts ranks that find each other: tried on a tiny program."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from mu2mpi.cluster.allocation import hosts_of_job
from mu2mpi.errors import InputError

LAUNCHER_VARIABLE = "MU2MPI_LAUNCHER"
# One write a rank, since launchers mix what ranks write in pieces.
PROBE = (
    "import os, socket; from mpi4py import MPI; "
    "os.write(1, f'{MPI.COMM_WORLD.Get_size()} {socket.gethostname()}\\n'.encode())"
)
PROBE_SECONDS = 60
# What is shown of what a probe that failed has printed.
PROBE_LINES = 12

# Of these, launchers pass on to other hosts what they happen to.
CARRIED = re.compile("MU2MPI_.*|PYTHONPATH|(OMP|NUMBA)_NUM_THREADS")

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
    # A second time, since a probe may have met the loss of a node, or of a process.
    for _ in range(2):
        lines = [f"no launcher starts {ranks} ranks that find each other:"]
        for candidate in _candidates(ranks):
            problem = _problem(candidate, ranks, environment)
            if problem is None:
                return candidate
            what, *printed = problem.splitlines()
            say(f"not with {shlex.join(candidate)}: {what}")
            lines += [f"  {shlex.join(candidate)}: {what}", *(f"    {line}" for line in printed)]
    way_out = f"Set {LAUNCHER_VARIABLE} to the command that does, such as 'srun --mpi=pmix -n {ranks}'"
    raise InputError("\n".join([*lines, way_out]))


def carried(environment: Mapping[str, str]) -> list[str]:
    """Return the beginning of a command that gives ranks on all hosts what they need of this environment."""
    return ["env", *(f"{name}={value}" for name, value in environment.items() if CARRIED.fullmatch(name))]


def _candidates(ranks: int) -> list[list[str]]:
    chosen = os.environ.get(LAUNCHER_VARIABLE)
    if chosen:
        try:
            return [shlex.split(chosen)]
        except ValueError as error:
            raise InputError(f"{LAUNCHER_VARIABLE} is no command: {error}") from None
    ours = Path(sys.executable).parent / "mpirun"
    mpirun = str(ours) if ours.exists() else shutil.which("mpirun")
    count = ["-n", str(ranks)]
    candidates = [[mpirun, *count]] if mpirun else []
    file, _ = hosts_of_job(ranks)
    if mpirun and file:
        # For an mpirun that does not know the scheduler.
        candidates.insert(0, [mpirun, "--hostfile", file, *count])
    if shutil.which("srun") and "SLURM_JOB_ID" in os.environ:
        kinds = ("--mpi=pmix", "--mpi=pmi2", "--mpi=none")
        candidates += [["srun", kind, "--kill-on-bad-exit=1", *count] for kind in kinds]
    if shutil.which("flux") and "FLUX_URI" in os.environ:
        candidates.append(["flux", "run", *count])
    return candidates


def _problem(launcher: Sequence[str], ranks: int, environment: Mapping[str, str]) -> str | None:
    """Try a launcher on a tiny program; return what is wrong with it and what it printed, or None."""
    command = [*launcher, *carried(environment), sys.executable, "-c", PROBE]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_SECONDS, env=environment)
    except subprocess.TimeoutExpired as error:
        printed = (error.stderr or b"").decode("utf-8", "replace")
        return _with_output(f"it does not end in {PROBE_SECONDS} seconds", printed)
    except OSError as error:
        return str(error)
    if done.returncode != 0:
        return _with_output(f"it ends with code {done.returncode}", done.stderr)
    words = done.stdout.split()
    sizes, hosts = words[::2], {*words[1::2]}
    if sizes != [str(ranks)] * ranks:
        return _with_output(f"its ranks see {', '.join(sorted(set(sizes))) or 'no'} ranks", done.stderr)
    _, expected = hosts_of_job(ranks)
    if len(hosts) < expected:
        return f"its ranks are on {len(hosts)} of the {expected} hosts of this job"
    return None


def _with_output(problem: str, printed: str) -> str:
    return "\n".join([problem, *[line for line in printed.splitlines() if line.strip()][-PROBE_LINES:]])


def say(message: str) -> None:
    """Tell on standard error what is done."""
    print(f"mu2mpi launch: {message}", file=sys.stderr, flush=True)
