"""``mu2mpi privacy``."""

import sys
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace

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


def at_least_one(text: str) -> int:
    """Return the number that a text says, or raise ArgumentTypeError."""
    if not text.isdecimal() or (number := int(text)) < 1:
        raise ArgumentTypeError(f"{text!r} is no whole number of at least 1")
    return number


def number_or_all(text: str) -> int | None:
    """Return None for all."""
    return None if text == "all" else at_least_one(text)


def add_arguments(parser: ArgumentParser) -> None:
    """Add result files, and the numbers to compute from."""
    add_paths(parser, nargs="*")
    for name, kind, metavar, what in NUMBERS:
        parser.add_argument(f"--{name}", type=kind, metavar=metavar, default=SUPPRESS, help=what)
    parser.add_argument(
        "--samples-of-a-person",
        type=number_or_all,
        metavar="K",
        default=SUPPRESS,
        help="say what files guarantee a person with up to K samples at a machine, or with `all` that it has",
    )
    parser.add_argument(
        "--machines-of-a-person",
        type=at_least_one,
        metavar="J",
        default=SUPPRESS,
        help="say it of a person with so many, or one, at each of up to J machines",
    )


def execute(arguments: Namespace) -> int:
    """Print what follows from the numbers, or which claims hold."""
    from mu2mpi.analysis.conversion import convert
    from mu2mpi.analysis.ledgers import check_ledgers
    from mu2mpi.analysis.persons import Person

    given = {name: getattr(arguments, name) for name, *_ in NUMBERS if hasattr(arguments, name)}
    if bool(given) == bool(arguments.paths):
        arguments.parser.error("give result files, or some of --rho, --epsilon and --delta")
    of_a_person = {name: f"{name}_of_a_person" for name in ("samples", "machines")}
    asked = {name: getattr(arguments, flag) for name, flag in of_a_person.items() if flag in arguments}
    if asked and given:
        arguments.parser.error("give result files to be told what they guarantee a person")
    person = Person(**asked) if asked else None
    text, problems = (convert(given), []) if given else check_ledgers(arguments.paths, person)
    print(text)
    for problem in problems:
        print(f"mu2mpi: error: {problem}", file=sys.stderr)
    return 1 if problems else 0
