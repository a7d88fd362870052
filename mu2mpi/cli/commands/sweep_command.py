"""Run every combination of the lists in a TOML file, or methods to compare.

Any key may hold a list; an option replaces it. Finished runs are skipped. --methods all compares every
method, with a trusted server by default, and says which cannot do what is asked for.
"""

import re
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path

from mu2mpi.cli.common_arguments import add_flag, add_output


def add_arguments(parser: ArgumentParser) -> None:
    from mu2mpi.cli.experiment_arguments import add_running_options

    words = "settings, of which any may be a list; --methods needs none"
    parser.add_argument("config", type=Path, nargs="?", metavar="TOML", help=words)
    compared = "methods to compare by their presets: all, or names with commas (docs/guides/practical.md)"
    parser.add_argument("--methods", metavar="NAMES", help=compared)
    add_output(parser, "[default: runs/]", "FOLDER", default=Path("runs"))
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--index", type=int, metavar="I", help="run only the I-th combination, from 0")
    some = "run only every N-th combination from the K-th, from 0 (array jobs)"
    which.add_argument("--part", type=_part, default=(0, 1), metavar="K/N", help=some)
    add_flag(parser, "--list", "print the combinations and their indices, run nothing")
    add_running_options(parser, overwrite="run again what is finished")


def _part(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
    if found is None or int(found[1]) >= int(found[2]):
        raise ArgumentTypeError(f"{text!r} is not K/N with two whole numbers, 0 <= K < N")
    return int(found[1]), int(found[2])


def outputs(arguments: Namespace, ranks: int) -> list[Path]:
    if arguments.list:
        return []
    from mu2mpi.cli.experiment_arguments import chosen_of

    sweep, chosen = chosen_of(arguments)
    return [arguments.output / sweep.file_name(experiment) for _, experiment in chosen]


def execute(arguments: Namespace) -> None:
    from mu2mpi.cli.experiment_arguments import chosen_of, how_to_run, warn_of_tests
    from mu2mpi.core.parallel import world

    communicator = world()
    with communicator.together():
        sweep, chosen = chosen_of(arguments)
    if arguments.list:
        if communicator.rank == 0:
            for line in sweep.left_out:
                print(line, file=sys.stderr)
            for index, experiment in chosen:
                print(index, sweep.file_name(experiment))
        return
    from mu2mpi.execution.sweep_runner import run_sweep

    told = how_to_run(arguments, communicator, outputs(arguments, communicator.size))
    run_sweep(sweep, chosen, arguments.output, **told)
    if communicator.rank == 0:
        warn_of_tests(experiment for _, experiment in chosen)
