"""Compute rho, epsilon and delta from each other, or check the claims of results.

Give --rho, or --epsilon, or two of --rho, --epsilon and --delta. Or give result files: what they claim is
computed again from their noise, and a claim that does not hold is an error with code 1.
"""

import sys
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace

from mu2mpi.cli.common_arguments import add_paths

NUMBERS = ("rho", "epsilon", "delta", "samples")


def _count(text: str) -> int | None:
    """Return a number of samples or machines, or None for all."""
    if text == "all":
        return None
    if not text.isdecimal() or (number := int(text)) < 1:
        raise ArgumentTypeError(f"{text!r} is no whole number of at least 1")
    return number


def add_arguments(parser: ArgumentParser) -> None:
    add_paths(parser, nargs="*")
    for option, kind, metavar, what in (
        ("rho", float, "REAL", "privacy of all releases together, as for `run`"),
        ("epsilon", float, "REAL", "the epsilon to reach"),
        ("delta", float, "REAL", "its delta [with --epsilon alone: that of `run`]"),
        ("samples", int, "N", "number of samples of all machines, by which delta is judged"),
    ):
        parser.add_argument(f"--{option}", type=kind, metavar=metavar, default=SUPPRESS, help=what)
    samples = "say what files guarantee a person with up to K samples at a machine, or with `all`"
    parser.add_argument("--samples-of-a-person", type=_count, metavar="K", default=SUPPRESS, help=samples)
    machines = "say it of a person with so many, or one, at each of up to J machines"
    parser.add_argument("--machines-of-a-person", type=_count, metavar="J", default=SUPPRESS, help=machines)


def execute(arguments: Namespace) -> int:
    from mu2mpi.analysis.privacy_reports import Person, check_ledgers, convert

    given = {name: getattr(arguments, name) for name in NUMBERS if name in arguments}
    if bool(given) == bool(arguments.paths):
        arguments.parser.error("give result files, or some of --rho, --epsilon and --delta")
    person = "_of_a_person"
    asked = {name.removesuffix(person): n for name, n in vars(arguments).items() if name.endswith(person)}
    if asked and given:
        arguments.parser.error("give result files to be told what they guarantee a person")
    if "machines" in asked and asked["machines"] is None:
        arguments.parser.error("--machines-of-a-person takes a number")
    whom = Person(**asked) if asked else None
    text, problems = (convert(given), []) if given else check_ledgers(arguments.paths, whom)
    print(text)
    for problem in problems:
        print(f"mu2mpi: error: {problem}", file=sys.stderr)
    return 1 if problems else 0
