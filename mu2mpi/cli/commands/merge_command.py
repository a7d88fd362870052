"""Merge results into a study file: one HDF5 file that other commands read like a folder.

Its results have paths such as study.h5/NAME.h5. To add results, merge it with them into a new file.
"""

from argparse import ArgumentParser, Namespace

from mu2mpi.cli.common_arguments import add_output, add_paths, add_shared_options


def add_arguments(parser: ArgumentParser) -> None:
    add_paths(parser)
    add_output(parser, "study file, such as study.h5", required=True)
    add_shared_options(parser, "--overwrite")


def run_command(arguments: Namespace) -> None:
    from mu2mpi.results.merging import merge_results

    names = merge_results(arguments.paths, arguments.output, arguments.overwrite)
    print(f"{arguments.output}: {len(names):,} results; next: mu2mpi table {arguments.output}")
