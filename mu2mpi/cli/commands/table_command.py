"""Print results as a table, by default in the layout of the paper's tables.

Shows mean and standard deviation over seeds, and the paper's value. Other settings that differ make several
tables.
"""

from argparse import ArgumentParser, Namespace

from mu2mpi.cli.common_arguments import add_flag, add_paths, add_shared_options, read_runs, split_names


def add_arguments(parser: ArgumentParser) -> None:
    add_paths(parser)
    add_shared_options(parser, "--where", "--strict")
    rows_help = "settings of the rows [default: method if several, server, epsilon or rho]"
    parser.add_argument("--rows", type=split_names, default=(), metavar="NAMES", help=rows_help)
    columns_help = "settings of the columns [default: machines, or another setting that differs]"
    parser.add_argument("--columns", type=split_names, default=(), metavar="NAMES", help=columns_help)
    add_shared_options(parser, "--values")
    formats, format_help = ("text", "csv", "markdown", "latex"), "output format [default: text]"
    parser.add_argument("--format", choices=formats, default="text", help=format_help)
    add_flag(parser, "--best", "marks on the best mean at the same privacy, machines and data")
    caption_help = "caption of the table, in LaTeX code for LaTeX"
    parser.add_argument("--caption", default="", metavar="TEXT", help=caption_help)
    parser.add_argument("--label", default="", metavar="NAME", help="label for \\ref, in LaTeX")


def run_command(arguments: Namespace) -> None:
    from mu2mpi.analysis.aggregation import TableLayout
    from mu2mpi.analysis.tables import TableStyle, build_table

    layout = TableLayout(arguments.rows, arguments.columns, arguments.values)
    style = TableStyle(arguments.caption, arguments.label, arguments.best)
    runs, _ = read_runs(arguments)
    print(build_table(runs, layout).render(arguments.format, style))
