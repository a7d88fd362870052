"""Start ranks with the mpirun that belongs to a Python environment."""

import os
import signal
import subprocess
import sys
from pathlib import Path

# More ranks than cores, as root or not: MPICH ignores what Open MPI needs.
SETTINGS = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    "NUMBA_NUM_THREADS": "1",
}


def restore_interrupts() -> None:
    """Let children die of Ctrl-C, or handle it, also where whoever started the tests ignores it (nohup)."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def mpirun(
    ranks: int, *arguments: str | Path, python: str = sys.executable, timeout: float = 600, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run ``python ARGUMENTS`` on some ranks and return what came of it."""
    return run_command(command_on(ranks, *arguments, python=python), timeout, variables)


def command_on(ranks: int, *arguments: str | Path, python: str = sys.executable) -> list[str | Path]:
    return [Path(python).parent / "mpirun", "-n", str(ranks), python, *arguments]


def mu2mpi(
    *arguments: str | Path, timeout: float = 600, cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the command line in one process without a launcher."""
    return run_command([sys.executable, "-m", "mu2mpi", *arguments], timeout, variables, cwd)


def run_command(
    command: list[str | Path], timeout: float, variables: dict[str, str], cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    texts = [str(part) for part in command]
    return subprocess.run(
        texts, capture_output=True, text=True, timeout=timeout, env={**os.environ, **SETTINGS, **variables},
        cwd=cwd, check=False,
    )  # fmt: skip
