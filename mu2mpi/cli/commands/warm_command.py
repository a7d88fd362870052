"""Compile the kernels of all losses, methods, servers and mechanisms into the cache, at installation.

Users who cannot write to the cache read it, if only its owner can write to it. It becomes invalid with
another processor model or features, with other versions of Python, numba, llvmlite or mu2mpi, and with
changed sources: repeat the command then, and once per type of processor.
"""

import os
from argparse import Namespace
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from mu2mpi.core.errors import InputError
from mu2mpi.core.lazy import np
from mu2mpi.core.parallel import Communicator
from mu2mpi.core.registry import known_names
from mu2mpi.core.text import warn

if TYPE_CHECKING:
    from mu2mpi.config.experiment import Experiment

FEATURE_DTYPES = "uint8", "float32", "float64"  # of stored samples
SMALL_RUN = {"data": "population", "classes": 2, "features": 2, "rounds": 4, "rho": 1}


def run_command(arguments: Namespace) -> None:
    from mu2mpi.config.sweep import Sweep
    from mu2mpi.core.kernels import is_trusted_folder
    from mu2mpi.execution.environment import kernel_cache_folder

    started, folder = perf_counter(), Path(kernel_cache_folder() or os.devnull)
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise InputError("no kernel cache can be written. Set NUMBA_CACHE_DIR, or run as the package's owner")
    os.umask(0o022)  # All users can read the kernels, and only their owner can write.
    root = Path(__file__).parents[2] if folder.name == "__pycache__" else folder.parent
    losses, methods, servers, mechanisms = map(known_names, ("losses", "methods", "servers", "mechanisms"))
    parts = [
        {"loss": losses, "method": methods, "server": "trusted"},
        {"method": methods, "server": servers, "mechanism": mechanisms},
        {"participation": "bernoulli:0.5"},
    ]
    existing = {*root.rglob("*.nbc")}
    for experiment in Sweep({**SMALL_RUN, "part": parts}).experiments:
        with suppress(InputError):  # Not all components go together.
            _compile_kernels(experiment)
    count = len({*root.rglob("*.nbc")} - existing)
    print(f"compiled {count} kernels in {perf_counter() - started:.0f} s; cache: {root}")
    if not is_trusted_folder(str(folder), __file__):
        warn(f"other users ignore {folder}, to which others than its owner can write. Use chmod go-w")


def _compile_kernels(experiment: "Experiment") -> None:
    """Compile the kernels of an experiment, for all types of stored features."""
    from mu2mpi.execution.plan import open_source, resolve_plan
    from mu2mpi.execution.simulation import Simulation
    from mu2mpi.execution.warmup import kernel_compilers

    plan = resolve_plan(experiment, open_source(experiment, None), 1)
    Simulation(plan, Communicator())
    for dtype in FEATURE_DTYPES:
        for compile_kernel in kernel_compilers(np.dtype(dtype), plan.constants):
            compile_kernel()
