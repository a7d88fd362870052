"""Print what a result file or a checkpoint holds."""

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path

from mu2mpi.cli.common_arguments import add_flag


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("path", type=Path, metavar="FILE", help="a result file, which may not be finished")
    uncovered = "print also what is computed from private data and not covered by the guarantee"
    add_flag(parser, "--diagnostics", uncovered)
    model = "print instead the model in the columns' own units, and what of it may be noise"
    add_flag(parser, "--coefficients", model)


def execute(arguments: Namespace) -> None:
    from mu2mpi.analysis.description import describe, describe_checkpoint, describe_coefficients
    from mu2mpi.results.checkpoint import read_checkpoint
    from mu2mpi.results.reader import read_result
    from mu2mpi.results.records import SUFFIX, checkpoint_path

    path = arguments.path
    if path.suffix != SUFFIX and not os.path.exists(path) and os.path.exists(checkpoint_path(path)):
        path = checkpoint_path(path)
    if path.suffix == SUFFIX:
        print(describe_checkpoint(read_checkpoint(path), path))
    elif arguments.coefficients:
        print(describe_coefficients(read_result(path), path))
    else:
        print(describe(read_result(path), path, arguments.diagnostics))
