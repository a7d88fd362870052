"""Say in what two results, or two folders of them, differ.

Settings, versions and machines, and results: runs of folders are matched by their settings, and where both
have several seeds a test says whether results differ by more than seeds do.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from mu2mpi.cli.common_arguments import add_shared, read_runs


def add_arguments(parser: ArgumentParser) -> None:
    for name in ("a", "b"):
        parser.add_argument(name, type=Path, metavar=name.upper(), help="a result file, or a folder of them")
    add_shared(parser, "--values", "--strict")


def execute(arguments: Namespace) -> None:
    from mu2mpi.analysis.differences import compare

    first, second = (
        read_runs(Namespace(paths=[path], strict=arguments.strict, where=[]))[0]
        for path in (arguments.a, arguments.b)
    )
    print(f"A: {arguments.a}\nB: {arguments.b}\n\n{compare(first, second, arguments.values)}")
