"""Compile kernels into the cache, at installation: those of all components, or of the runs in a file.

Users who cannot write to the cache read it, if only its owner can write to it. It becomes invalid with
another processor model or features, with other versions of Python, numba, llvmlite or mu2mpi, and with
changed sources: repeat the command then, and once per type of processor.
"""

import os
from argparse import ArgumentParser, Namespace
from contextlib import nullcontext, suppress
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from mu2mpi.cli.common_arguments import add_shared_options
from mu2mpi.core.errors import InputError
from mu2mpi.core.lazy import np
from mu2mpi.core.parallel import Communicator
from mu2mpi.core.registry import known_names
from mu2mpi.core.text import warn
from mu2mpi.core.toml import read_toml

if TYPE_CHECKING:
    from mu2mpi.config.experiment import Experiment

USAGE_EXAMPLES = """\
  mu2mpi warm
  srun --constraint=genoa -n 1 mu2mpi warm
  NUMBA_CACHE_DIR=/apps/mu2mpi/kernels mu2mpi warm tables.toml"""
FEATURE_DTYPES = "uint8", "float32", "float64"  # of stored samples
SMALL_RUN = {"data": "population", "classes": 2, "features": 2, "rounds": 4, "rho": 1}


def add_arguments(parser: ArgumentParser) -> None:
    config_help = "settings of a run or sweep whose kernels to compile [default: all kernels]"
    parser.add_argument("config", type=Path, nargs="?", metavar="TOML", help=config_help)
    add_shared_options(parser, "--data-dir")


def run_command(arguments: Namespace) -> None:
    from mu2mpi.config.sweep import Sweep
    from mu2mpi.core.kernels import is_trusted_folder
    from mu2mpi.execution.environment import kernel_cache_folder

    started, folder, config = perf_counter(), Path(kernel_cache_folder() or os.devnull), arguments.config
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
    sweep = Sweep(read_toml(config), str(config)) if config else Sweep({**SMALL_RUN, "part": parts})
    existing = {*root.rglob("*.nbc")}
    _compile_kernels(sweep.experiments, arguments.data_dir, () if config else FEATURE_DTYPES)
    count = len({*root.rglob("*.nbc")} - existing)
    print(f"compiled {count} kernels in {perf_counter() - started:.0f} s; cache: {root}")
    if not is_trusted_folder(str(folder), __file__):
        warn(f"other users ignore {folder}, to which others than its owner can write. Use chmod go-w")


def _compile_kernels(
    experiments: "list[Experiment]", data_dir: Path | None, more_feature_dtypes: tuple[str, ...]
) -> None:
    """Compile the kernels of experiments for their own data, and for further types of stored features."""
    from mu2mpi.execution.plan import open_source, resolve_plan
    from mu2mpi.execution.simulation import Simulation
    from mu2mpi.execution.warmup import kernel_compilers

    for experiment in experiments:
        # Not all components go together.
        with suppress(InputError) if more_feature_dtypes else nullcontext():
            plan = resolve_plan(experiment, open_source(experiment, data_dir), 1)
            Simulation(plan, Communicator())
            for dtype in more_feature_dtypes:
                for compile_kernel in kernel_compilers(np.dtype(dtype), plan.constants):
                    compile_kernel()
