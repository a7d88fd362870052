"""``mu2mpi plot``."""

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path

from mu2mpi.analysis.catalogue import AGAINST, KINDS, check_kind, suffix_of
from mu2mpi.cli.shared import add_flag, add_output, add_runs, read_runs
from mu2mpi.suggestions import or_else

SUMMARY = "draw a figure of results, ready for a paper"
MORE = (
    f"FIGURE is one of: {'; '.join(f'{kind} ({what})' for kind, what in KINDS.items())}. "
    "Without it: tradeoff for runs of several rho, history otherwise."
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add the figure and the results, the output, and what is across."""
    add_runs(parser, "[FIGURE] PATH")
    add_output(parser, "PNG, SVG or PDF by its suffix [default: FIGURE.png]")
    across = (f"{' or '.join(axes)} for {kind} [default: {axes[0]}]" for kind, axes in AGAINST.items())
    axes = [axis for axes in AGAINST.values() for axis in axes]
    parser.add_argument("--against", choices=axes, help=f"what is across: {'; '.join(across)}")
    add_flag(parser, "--overwrite", "replace the output if it exists")


def execute(arguments: Namespace) -> None:
    """Draw the figure that is named, or the one that suits the results, and print the file's name."""
    from mu2mpi.analysis.figures import draw, image
    from mu2mpi.files import write_whole
    from mu2mpi.results.writer import check_output

    first, *others = arguments.paths
    kind = str(first) if str(first) in KINDS else None
    if kind is not None:
        if not others:
            arguments.parser.error(f"name the results to draw, such as: mu2mpi plot {kind} runs/")
        check_kind(kind, arguments.against)
        arguments.paths = others
    elif not os.path.exists(first):
        arguments.parser.error(
            f"{first} is neither a figure nor a file or folder{or_else(str(first), KINDS, 'figures')}"
        )
    if arguments.output is not None:
        suffix_of(arguments.output)
        check_output(arguments.output, arguments.overwrite)
    runs, _ = read_runs(arguments)
    kind = kind or ("tradeoff" if len({run.experiment.rho for run in runs}) > 1 else "history")
    output = arguments.output or Path(f"{kind}.png")
    check_output(output, arguments.overwrite)
    write_whole(output, [image(draw(kind, runs, arguments.against), suffix_of(output))])
    print(output)
