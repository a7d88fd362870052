"""``mu2mpi table``."""

from argparse import ArgumentParser, Namespace

from mu2mpi.cli.shared import add_flag, add_runs, read_runs

SUMMARY = "print results as a table, by default in the layout of the paper's"
MORE = (
    "Mean and standard deviation over seeds, the paper's value beside. Settings that are neither row nor "
    "column and differ make several tables."
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add the results, and the layout and format of the table."""
    add_runs(parser)
    for option, default, what in (
        ("--rows", "method where methods differ, server, epsilon or rho", "settings to put down"),
        ("--columns", "machines, or what differs in their place", "settings to put across"),
        ("--values", "test_loss, and test_accuracy or test_r2", "measurements, such as auc or rmse"),
    ):
        text = f"{what} [default: {default}]"
        parser.add_argument(option, type=_names, default=(), metavar="NAMES", help=text)
    parser.add_argument("--format", choices=("text", "csv", "markdown", "latex"), default="text")
    add_flag(parser, "--best", "mark the best mean of those at the same privacy, machines and data")
    parser.add_argument("--caption", default="", metavar="TEXT", help="what the table is of; LaTeX in LaTeX")
    parser.add_argument("--label", default="", metavar="NAME", help="what \\ref takes, in LaTeX")
    add_flag(parser, "--siunitx", "align numbers by that package, in LaTeX")
    own = "what settings are called, such as rho=4:strong or rho:privacy; may be given several times"
    parser.add_argument("--labels", action="append", default=[], metavar="SETTING:LABEL", help=own)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def execute(arguments: Namespace) -> None:
    """Print the table."""
    from mu2mpi.analysis.layouts import Layout
    from mu2mpi.analysis.tables import Dress, build_table
    from mu2mpi.analysis.words import Words

    layout = Layout(arguments.rows, arguments.columns, arguments.values)
    words = Words(dict(label.split(":", 1) for label in arguments.labels))
    dress = Dress(arguments.caption, arguments.label, arguments.siunitx, arguments.best, words)
    runs, _ = read_runs(arguments)
    print(build_table(runs, layout).render(arguments.format, dress))
