"""Print the differences of two results, or two folders of results.

Compares settings, versions, hosts, and the bits of models. Runs of two folders are matched by their settings.
`mu2mpi table A B` shows their results.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from mu2mpi.cli.common_arguments import add_shared_options, read_runs


def add_arguments(parser: ArgumentParser) -> None:
    for name in ("a", "b"):
        parser.add_argument(name, type=Path, metavar=name.upper(), help="result file or folder")
    add_shared_options(parser, "--strict")


def run_command(arguments: Namespace) -> None:
    from mu2mpi.analysis.differences import compare

    inputs = (Namespace(paths=[p], strict=arguments.strict, where=[]) for p in (arguments.a, arguments.b))
    first, second = (read_runs(namespace)[0] for namespace in inputs)
    print(f"A: {arguments.a}\nB: {arguments.b}\n\n{compare(first, second)}")
