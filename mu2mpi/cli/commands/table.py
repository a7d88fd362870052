"""``mu2mpi table``."""

import sys
from argparse import ArgumentParser, Namespace

from mu2mpi.cli.shared import add_flag, add_runs, add_values, read_runs, split

SUMMARY = "print results as a table, by default in the layout of the paper's"
MORE = (
    "Mean and standard deviation over seeds, the paper's value beside. Settings that are neither row nor "
    "column and differ make several tables."
)


def add_arguments(parser: ArgumentParser) -> None:
    add_runs(parser)
    for option, default, what in (
        ("--rows", "method where methods differ, server, epsilon or rho", "settings to put down"),
        ("--columns", "machines, or what differs in their place", "settings to put across"),
    ):
        text = f"{what} [default: {default}]"
        parser.add_argument(option, type=split, default=(), metavar="NAMES", help=text)
    add_values(parser)
    parser.add_argument("--format", choices=("text", "csv", "markdown", "latex"), default="text")
    add_flag(parser, "--best", "mark the best mean of those at the same privacy, machines and data")
    parser.add_argument("--caption", default="", metavar="TEXT", help="what the table is of; LaTeX in LaTeX")
    parser.add_argument("--label", default="", metavar="NAME", help="what \\ref takes, in LaTeX")
    add_flag(parser, "--siunitx", "align numbers by that package, in LaTeX")
    own = "call a setting or a value otherwise, as rho=4:strong or rho:privacy, or as a TOML file says"
    parser.add_argument("--labels", action="append", default=[], metavar="NAME[=VALUE]:TEXT", help=own)


def execute(arguments: Namespace) -> None:
    """Print the table."""
    from mu2mpi.analysis.cells import Layout
    from mu2mpi.analysis.tables import Dress, build_table
    from mu2mpi.analysis.words import Words, read_labels, unmatched

    layout = Layout(arguments.rows, arguments.columns, arguments.values)
    words = Words(read_labels(arguments.labels))
    dress = Dress(arguments.caption, arguments.label, arguments.siunitx, arguments.best, words)
    runs, _ = read_runs(arguments)
    for note in unmatched(arguments.labels, runs):
        print(f"mu2mpi: warning: {note}", file=sys.stderr)
    print(build_table(runs, layout).render(arguments.format, dress))
