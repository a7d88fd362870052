"""Draw a figure of results, ready for a paper."""

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path

from mu2mpi.cli.common_arguments import add_flag, add_output, add_paths, add_shared, read_runs
from mu2mpi.core.registry import names, summary
from mu2mpi.core.suggestions import or_else
from mu2mpi.core.text import warn


def add_arguments(parser: ArgumentParser) -> None:
    known = "; ".join(f"{name} ({summary('figures', name)})" for name in names("figures"))
    parser.description = (
        f"{__doc__} FIGURE is one of: {known}. "
        "Without it: tradeoff for several rho or epsilon, or --against a setting, history otherwise."
    )
    add_paths(parser, metavar="[FIGURE] PATH")
    add_shared(parser, "--where", "--strict")
    add_output(parser, "PNG, SVG or PDF by its suffix [default: FIGURE.png]")
    across = "horizontal axis of history or tradeoff, as samples or machines [default: round; rho or epsilon]"
    parser.add_argument("--against", metavar="NAME", help=across)
    width = "inches, or a paper's column (3.3) or page (7), at which all text has 8 points [default: page]"
    parser.add_argument("--width", metavar="INCHES|column|page", default="page", help=width)
    parser.add_argument("--title", metavar="TEXT", help="what stands above the figure")
    add_shared(parser, "--labels")
    add_flag(parser, "--linear", "make axes linear that are logarithmic by themselves")
    style = "a style sheet of matplotlib, which has the last word on how it looks"
    parser.add_argument("--style", type=Path, metavar="FILE.mplstyle", help=style)
    add_shared(parser, "--overwrite")


def execute(arguments: Namespace) -> None:
    from mu2mpi.analysis.aggregation import versions_note
    from mu2mpi.analysis.figures import draw, find_figure, image, page_of, suffix_of
    from mu2mpi.analysis.setting_labels import unmatched
    from mu2mpi.core.files import write_whole
    from mu2mpi.results.writer import check_output

    first, *others = arguments.paths
    kind = str(first) if str(first) in names("figures") else None
    if kind is not None:
        if not others:
            arguments.parser.error(f"name the results to draw, such as: mu2mpi plot {kind} runs/")
        arguments.paths = others
    elif not os.path.exists(first):
        meant = or_else(str(first), names("figures"), "figures")
        arguments.parser.error(f"{first} is neither a figure nor a file or folder{meant}")
    elif arguments.against is not None:
        kind = "history" if arguments.against in find_figure("history").axes else "tradeoff"
    if kind is not None:
        find_figure(kind, arguments.against)
    if arguments.output is not None:
        suffix_of(arguments.output)
        check_output(arguments.output, arguments.overwrite)
    page = page_of(arguments.width, arguments.title, arguments.linear, arguments.labels, arguments.style)
    runs, _ = read_runs(arguments)
    kind = kind or ("tradeoff" if len({run.experiment.rho for run in runs}) > 1 else "history")
    output = arguments.output or Path(f"{kind}.png")
    check_output(output, arguments.overwrite)
    warn(*versions_note(runs), *unmatched(arguments.labels, runs))
    write_whole(output, [image(draw(kind, runs, arguments.against, page), suffix_of(output), page)])
    print(output)
