"""``mu2mpi privacy``."""

import sys
from argparse import SUPPRESS, ArgumentParser, Namespace

from mu2mpi.cli.shared import add_paths

SUMMARY = "compute rho, epsilon and delta from each other, or check the claims of results"
MORE = (
    "Give --rho, or --epsilon, or two of --rho, --epsilon and --delta. Or give result files: what they "
    "claim is computed again from their noise, and a claim that does not hold is an error with code 1."
)

NUMBERS = (
    ("rho", float, "REAL", "privacy of all releases together, as for `run`"),
    ("epsilon", float, "REAL", "the epsilon to reach"),
    ("delta", float, "REAL", "its delta [with --epsilon alone: that of `run`]"),
    ("samples", int, "N", "number of samples of all machines, by which delta is judged"),
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add result files, and the numbers to compute from."""
    add_paths(parser, nargs="*")
    for name, kind, metavar, what in NUMBERS:
        parser.add_argument(f"--{name}", type=kind, metavar=metavar, default=SUPPRESS, help=what)


def execute(arguments: Namespace) -> int:
    """Print what follows from the numbers, or which claims hold."""
    from mu2mpi.analysis.conversion import convert
    from mu2mpi.analysis.ledgers import check_ledgers

    given = {name: getattr(arguments, name) for name, *_ in NUMBERS if hasattr(arguments, name)}
    if bool(given) == bool(arguments.paths):
        arguments.parser.error("give result files, or some of --rho, --epsilon and --delta")
    text, problems = (convert(given), []) if given else check_ledgers(arguments.paths)
    print(text)
    for problem in problems:
        print(f"mu2mpi: error: {problem}", file=sys.stderr)
    return 1 if problems else 0
