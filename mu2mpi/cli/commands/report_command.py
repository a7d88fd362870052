"""Make one page of results: tables, figures, privacy, how to repeat them.

The page holds all that it shows and needs no network.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from mu2mpi.cli.common_arguments import add_output, add_paths, add_shared, read_runs
from mu2mpi.core.errors import InputError

SUFFIXES = (".html", ".htm")


def add_arguments(parser: ArgumentParser) -> None:
    add_paths(parser)
    add_shared(parser, "--where", "--strict")
    add_output(parser, "[default: report.html]", default=Path("report.html"))
    add_shared(parser, "--overwrite")


def execute(arguments: Namespace) -> None:
    from mu2mpi.analysis.report import build_report
    from mu2mpi.core.files import write_whole
    from mu2mpi.results.writer import check_output

    if arguments.output.suffix.lower() not in SUFFIXES:
        raise InputError(f"{arguments.output}: a report is HTML; use {' or '.join(SUFFIXES)} at its end")
    check_output(arguments.output, arguments.overwrite)
    runs, skipped = read_runs(arguments)
    # A name of a file need not be text.
    write_whole(arguments.output, [build_report(runs, skipped).encode(errors="replace")])
    print(arguments.output)
