"""Draw a figure of results for a paper."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from mu2mpi.cli.common_arguments import add_flag, add_output, add_paths, add_shared_options, read_runs
from mu2mpi.core.registry import component_summary, known_names
from mu2mpi.core.suggestions import suggest_or_list
from mu2mpi.core.text import warn


def add_arguments(parser: ArgumentParser) -> None:
    known = "; ".join(f"{name} ({component_summary('figures', name)})" for name in known_names("figures"))
    parser.description = (
        f"{__doc__} FIGURE is one of: {known}. "
        "Default: tradeoff for several rho or epsilon or with --x-axis a setting, else history."
    )
    add_paths(parser, metavar="[FIGURE] PATH")
    add_shared_options(parser, "--where", "--strict")
    add_output(parser, "image file: .png, .svg or .pdf [default: FIGURE.png]")
    x_axis_help = "horizontal axis; of tradeoff, any setting or measurement [default: round, or what varies]"
    parser.add_argument("--x-axis", "--against", metavar="NAME", help=x_axis_help)
    add_shared_options(parser, "--values")
    width_help = "width in inches, or of a column (3.3) or page (7) [default: page]"
    parser.add_argument("--width", metavar="INCHES|column|page", default="page", help=width_help)
    parser.add_argument("--title", metavar="TEXT", help="title above the figure")
    add_flag(parser, "--linear", "linear axes instead of logarithmic ones")
    style_help = "matplotlib style sheet, applied last"
    parser.add_argument("--style", type=Path, metavar="FILE.mplstyle", help=style_help)
    add_shared_options(parser, "--overwrite")


def run_command(arguments: Namespace) -> None:
    from mu2mpi.analysis.aggregation import version_note
    from mu2mpi.analysis.figures import FigureOptions, draw_figure, figure_format, get_figure, render_figure
    from mu2mpi.core.files import write_atomically
    from mu2mpi.results.writer import check_output

    first, *others = arguments.paths
    figure = str(first) if str(first) in known_names("figures") else None
    if figure is not None:
        if not others:
            arguments.parser.error(f"Results are missing. Name them, such as: mu2mpi plot {figure} runs/")
        arguments.paths = others
    elif not first.exists():
        hint = suggest_or_list(str(first), known_names("figures"), "figures")
        arguments.parser.error(f"{first} is neither a figure nor a file or folder{hint}")
    elif arguments.x_axis is not None:
        figure = "history" if arguments.x_axis in (get_figure("history").x_axes or ()) else "tradeoff"
    if figure is not None:
        get_figure(figure, arguments.x_axis)
    if arguments.output is not None:
        figure_format(arguments.output)
        check_output(arguments.output, arguments.overwrite)
    appearance = arguments.width, arguments.title, arguments.linear, arguments.style, arguments.values
    options = FigureOptions(*appearance)
    runs, _ = read_runs(arguments)
    figure = figure or ("tradeoff" if len({run.experiment.rho for run in runs}) > 1 else "history")
    output = arguments.output or Path(f"{figure}.png")
    check_output(output, arguments.overwrite)
    warn(*version_note(runs))
    drawing = draw_figure(figure, runs, arguments.x_axis, options)
    write_atomically(output, [render_figure(drawing, figure_format(output), options)])
    print(output)
