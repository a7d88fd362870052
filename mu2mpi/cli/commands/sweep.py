"""``mu2mpi sweep``."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from mu2mpi.cli.shared import add_flag, add_output, warn_of_kernels, warn_of_tests

SUMMARY = "run every combination of the lists in a TOML file"
MORE = "Any key may hold a list; an option replaces it. Finished runs are skipped."
MAKES_RESULTS = True


def add_arguments(parser: ArgumentParser) -> None:
    """Add the file, the folder of results, which combinations to run, and settings that replace lists."""
    from mu2mpi.cli.options import add_running_options

    parser.add_argument("config", type=Path, metavar="TOML", help="settings, of which any may be a list")
    add_output(parser, "[default: runs/]", "FOLDER", default=Path("runs"))
    one = "run only the I-th combination, from 0 (array jobs)"
    parser.add_argument("--index", type=int, metavar="I", help=one)
    add_flag(parser, "--list", "print the combinations and their indices, run nothing")
    add_flag(parser, "--overwrite", "run again what is finished")
    add_running_options(parser)


def execute(arguments: Namespace) -> None:
    """List the combinations, or run those that are not finished."""
    from mu2mpi.cli.options import given_settings
    from mu2mpi.config.sweep import Sweep
    from mu2mpi.config.toml import read_toml
    from mu2mpi.execution.sweep import run_sweep
    from mu2mpi.execution.warmup import start_compiler_without_scipy
    from mu2mpi.parallel import world

    communicator = world()
    with communicator.together():
        sweep = Sweep(read_toml(arguments.config), str(arguments.config), given_settings(arguments))
        chosen = sweep.choose(arguments.index)
    if arguments.list:
        if communicator.rank == 0:
            for index, experiment in chosen:
                print(index, sweep.file_name(experiment))
        return
    start_compiler_without_scipy()
    warn_of_kernels(communicator)
    run_sweep(
        sweep, chosen, arguments.output, arguments.data_dir, arguments.overwrite, arguments.checkpoint_every
    )
    if communicator.rank == 0:
        warn_of_tests(experiment for _, experiment in chosen)
