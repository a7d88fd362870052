"""Print a summary of a result file or a checkpoint."""

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path

from mu2mpi.cli.common_arguments import add_flag


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("path", type=Path, metavar="FILE", help="result file or checkpoint")
    diagnostics_help = "diagnostics too: computed from private data, not covered by the guarantee"
    add_flag(parser, "--diagnostics", diagnostics_help)
    add_flag(parser, "--coefficients", "model coefficients instead, in the units of the columns")


def run_command(arguments: Namespace) -> None:
    from mu2mpi.analysis.description import describe_checkpoint, describe_coefficients, describe_result
    from mu2mpi.results.checkpoint import read_checkpoint
    from mu2mpi.results.reader import read_result
    from mu2mpi.results.records import CHECKPOINT_SUFFIX, checkpoint_path

    path = arguments.path
    is_missing = path.suffix != CHECKPOINT_SUFFIX and not os.path.exists(path)
    if is_missing and os.path.exists(checkpoint_path(path)):
        path = checkpoint_path(path)
    if path.suffix == CHECKPOINT_SUFFIX:
        print(describe_checkpoint(read_checkpoint(path), path))
    elif arguments.coefficients:
        print(describe_coefficients(read_result(path), path))
    else:
        print(describe_result(read_result(path), path, arguments.diagnostics))
