"""Print results as a table, by default in the layout of the paper's.

Mean and standard deviation over seeds, the paper's value beside. Settings that are neither row nor column and
differ make several tables.
"""

from argparse import ArgumentParser, Namespace

from mu2mpi.cli.common_arguments import add_flag, add_paths, add_shared, read_runs, split
from mu2mpi.core.text import warn


def add_arguments(parser: ArgumentParser) -> None:
    add_paths(parser)
    add_shared(parser, "--where", "--strict")
    rows = "settings to put down [default: method where methods differ, server, epsilon or rho]"
    parser.add_argument("--rows", type=split, default=(), metavar="NAMES", help=rows)
    columns = "settings to put across [default: machines, or what differs in their place]"
    parser.add_argument("--columns", type=split, default=(), metavar="NAMES", help=columns)
    add_shared(parser, "--values")
    parser.add_argument("--format", choices=("text", "csv", "markdown", "latex"), default="text")
    add_flag(parser, "--best", "mark the best mean of those at the same privacy, machines and data")
    parser.add_argument("--caption", default="", metavar="TEXT", help="what the table is of; LaTeX in LaTeX")
    parser.add_argument("--label", default="", metavar="NAME", help="what \\ref takes, in LaTeX")
    add_flag(parser, "--siunitx", "align numbers by that package, in LaTeX")
    add_shared(parser, "--labels")


def execute(arguments: Namespace) -> None:
    from mu2mpi.analysis.aggregation import Layout
    from mu2mpi.analysis.setting_labels import Words, read_labels, unmatched
    from mu2mpi.analysis.tables import Dress, build_table

    layout = Layout(arguments.rows, arguments.columns, arguments.values)
    words = Words(read_labels(arguments.labels))
    dress = Dress(arguments.caption, arguments.label, arguments.siunitx, arguments.best, words)
    runs, _ = read_runs(arguments)
    warn(*unmatched(arguments.labels, runs))
    print(build_table(runs, layout).render(arguments.format, dress))
