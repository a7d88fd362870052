"""``mu2mpi table``."""

from argparse import ArgumentParser, Namespace

from mu2mpi.cli.shared import add_runs, read_runs

SUMMARY = "print results as a table, by default in the layout of the paper's"
MORE = (
    "Mean and standard deviation over seeds, the paper's value beside. Settings that are neither row nor "
    "column and differ make several tables."
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add the results, and the layout and format of the table."""
    add_runs(parser)
    for option, default, what in (
        ("--rows", "server,rho", "settings to put down"),
        ("--columns", "machines", "settings to put across"),
    ):
        text = f"{what} [default: {default}]"
        parser.add_argument(option, type=_names, default=(), metavar="NAMES", help=text)
    values = "measurements, such as auc or rmse [default: test_loss, and test_accuracy or test_r2]"
    parser.add_argument("--values", type=_names, default=(), metavar="NAMES", help=values)
    parser.add_argument("--format", choices=("text", "csv", "markdown", "latex"), default="text")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def execute(arguments: Namespace) -> None:
    """Print the table."""
    from mu2mpi.analysis.cells import Layout
    from mu2mpi.analysis.tables import build_table

    layout = Layout(arguments.rows, arguments.columns, arguments.values)
    runs, _ = read_runs(arguments)
    print(build_table(runs, layout).render(arguments.format))
