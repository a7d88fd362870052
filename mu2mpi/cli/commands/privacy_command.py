"""Compute rho, epsilon and delta from each other, or check the claims of results.

Takes --rho, --epsilon, or two of --rho, --epsilon and --delta; or result files, whose claims are computed
again from their noise. A claim that does not hold ends the command with exit code 1.
"""

import sys
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace

from mu2mpi.cli.common_arguments import add_paths

BUDGET_OPTIONS = ("rho", "epsilon", "delta", "samples")


def _parse_count(text: str) -> int | None:
    """Parse a number of samples or machines; None for "all"."""
    if text == "all":
        return None
    if not text.isdecimal() or (number := int(text)) < 1:
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return number


def add_arguments(parser: ArgumentParser) -> None:
    add_paths(parser, nargs="*")
    for option, kind, metavar, what in (
        ("rho", float, "REAL", "privacy budget of all releases, as for `run`"),
        ("epsilon", float, "REAL", "epsilon to reach"),
        ("delta", float, "REAL", "delta of epsilon [default with --epsilon: that of `run`]"),
        ("samples", int, "N", "number of samples of all machines, to compare delta with"),
    ):
        parser.add_argument(f"--{option}", type=kind, metavar=metavar, default=SUPPRESS, help=what)
    samples = "group size: up to K samples of a person at a machine, or `all`"
    parser.add_argument(
        "--samples-of-a-person", type=_parse_count, metavar="K", default=SUPPRESS, help=samples
    )
    machines = "number of machines J that may hold samples of a person"
    parser.add_argument(
        "--machines-of-a-person", type=_parse_count, metavar="J", default=SUPPRESS, help=machines
    )


def execute(arguments: Namespace) -> int:
    from mu2mpi.analysis.privacy_reports import Person, check_claims, convert_budget

    given = {name: getattr(arguments, name) for name in BUDGET_OPTIONS if name in arguments}
    if bool(given) == bool(arguments.paths):
        arguments.parser.error(
            "Nothing to compute, or too much. Give either result files, or --rho, --epsilon and --delta"
        )
    person = "_of_a_person"
    group_options = {
        name.removesuffix(person): n for name, n in vars(arguments).items() if name.endswith(person)
    }
    if group_options and given:
        arguments.parser.error(
            "Options about a person need result files. Give files instead of --rho, --epsilon and --delta"
        )
    if "machines" in group_options and group_options["machines"] is None:
        arguments.parser.error(
            "--machines-of-a-person must be a number, got all. Give the largest number of machines"
        )
    whom = Person(**group_options) if group_options else None
    text, problems = (convert_budget(given), []) if given else check_claims(arguments.paths, whom)
    print(text)
    for problem in problems:
        print(f"mu2mpi: error: {problem}", file=sys.stderr)
    return 1 if problems else 0
