"""Compile kernels into the cache, at installation: those of all components, or of the runs in a file.

Users whom the cache is not writable for read it, if only root and the owner of the package can write to it.
It becomes invalid with another processor model or features, with other versions of Python, numba, llvmlite
or mu2mpi, and with changed sources: repeat the command then, and once per type of processor.
"""

import os
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any

from mu2mpi.cli.common_arguments import add_shared_options
from mu2mpi.config.sweep import Sweep
from mu2mpi.core.errors import InputError
from mu2mpi.core.parallel import Communicator
from mu2mpi.core.registry import known_names
from mu2mpi.core.text import warn
from mu2mpi.core.toml import read_toml

USAGE_EXAMPLES = """\
  mu2mpi warm
  srun --constraint=genoa -n 1 mu2mpi warm
  NUMBA_CACHE_DIR=/apps/mu2mpi/kernels mu2mpi warm tables.toml"""
FEATURE_DTYPES = "uint8", "float32", "float64"  # of stored samples
SMALL_RUN = {"data": "population", "classes": 2, "features": 2, "machines": 2, "rounds": 4, "rho": 1}


def add_arguments(parser: ArgumentParser) -> None:
    config_help = "file of `run` or `sweep` whose kernels to compile [default: those of all components]"
    parser.add_argument("config", type=Path, nargs="?", metavar="TOML", help=config_help)
    add_shared_options(parser, "--data-dir")


def run_command(arguments: Namespace) -> None:
    import numpy as np
    from numba.core import event

    from mu2mpi.config.experiment import Experiment
    from mu2mpi.core.kernels import KernelCache, is_trusted_folder
    from mu2mpi.execution.environment import kernel_cache_folder
    from mu2mpi.execution.plan import open_source, resolve_plan
    from mu2mpi.execution.simulation import Simulation
    from mu2mpi.execution.warmup import initialise_numba_without_scipy, kernel_compilers

    if (folder := kernel_cache_folder()) is None or not os.access(folder, os.W_OK):
        raise InputError("no kernel cache can be written. Set NUMBA_CACHE_DIR, or run as the package's owner")
    os.umask(0o022)  # All users read the cache, and none but its owner writes to it.
    initialise_numba_without_scipy()
    started, config = perf_counter(), arguments.config
    runs = _component_settings() if config is None else Sweep(read_toml(config), str(config)).experiments
    with event.install_recorder("numba:compile") as recorder:
        for run in runs:
            # Not all components go together.
            with suppress(InputError) if config is None else nullcontext():
                experiment = run if isinstance(run, Experiment) else Experiment.from_settings(run)
                source = open_source(experiment, arguments.data_dir)
                constants = Simulation(resolve_plan(experiment, source, 1), Communicator()).constants
                for dtype in FEATURE_DTYPES if config is None else ():
                    for compile_kernel in kernel_compilers(np.dtype(dtype), constants):
                        compile_kernel()
    dispatchers = [entry.data["dispatcher"] for _, entry in recorder.buffer if entry.is_end]
    kernels = Counter(item.__name__ for item in dispatchers if isinstance(item._cache, KernelCache))
    print(*(f"{name} ({count})" for name, count in sorted(kernels.items())), sep="\n")
    print(f"compiled {kernels.total()} kernels in {perf_counter() - started:.0f} s; cache: {folder}")
    if not is_trusted_folder(folder, __file__):
        warn(f"other users ignore {folder}, as its group or others can write to it. Use chmod go-w")


def _component_settings() -> Iterator[dict[str, Any]]:
    """Settings of small runs with all losses, methods, trust modes, mechanisms and participations."""
    methods, servers, mechanisms = map(known_names, ("methods", "servers", "mechanisms"))
    for loss, method in product(known_names("losses"), methods):
        yield {**SMALL_RUN, "loss": loss, "method": method}
    for method, server, mechanism in product(methods, servers, mechanisms):
        yield {**SMALL_RUN, "method": method, "server": server, "mechanism": mechanism}
    for participation in known_names("participation"):
        yield {**SMALL_RUN, "participation": participation}
