"""Write an HTML report of results: tables, figures, privacy, how to repeat them.

The file is self-contained and needs no network.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from mu2mpi.cli.common_arguments import add_output, add_paths, add_shared_options, read_runs
from mu2mpi.core.errors import InputError

HTML_SUFFIXES = (".html", ".htm")


def add_arguments(parser: ArgumentParser) -> None:
    add_paths(parser)
    add_shared_options(parser, "--where", "--strict")
    add_output(parser, "HTML file [default: report.html]", default=Path("report.html"))
    add_shared_options(parser, "--overwrite")


def run_command(arguments: Namespace) -> None:
    from mu2mpi.analysis.report import build_report
    from mu2mpi.core.files import write_atomically
    from mu2mpi.results.writer import check_output

    if arguments.output.suffix.lower() not in HTML_SUFFIXES:
        raise InputError(f"--output must end in {' or '.join(HTML_SUFFIXES)}, got {arguments.output}")
    check_output(arguments.output, arguments.overwrite)
    runs, skipped = read_runs(arguments)
    # File names in the report need not be valid UTF-8.
    write_atomically(arguments.output, [build_report(runs, skipped).encode(errors="replace")])
    print(arguments.output)
