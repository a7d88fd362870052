"""Compute rho, epsilon and delta from each other, or check the claims of results.

Takes --rho, --epsilon, or two of --rho, --epsilon and --delta; or result files, whose claims are computed
again from their noise. A claim that does not hold ends the command with exit code 1.
"""

from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable
from typing import Any

from mu2mpi.cli.common_arguments import add_paths
from mu2mpi.core.text import print_messages

PRIVACY_BUDGET_OPTIONS = ("rho", "epsilon", "delta", "samples")
GROUP_SIZE_HELP = "group size: up to K samples of a person at a machine, or `all`"


def _parse_count(text: str) -> int | None:
    if text == "all":
        return None
    if not text.isdecimal() or (number := int(text)) < 1:
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return number


def add_arguments(parser: ArgumentParser) -> None:
    add_paths(parser, nargs="*")
    options: tuple[tuple[str, Callable[[str], Any], str, str], ...] = (
        ("rho", float, "REAL", "privacy budget of all releases, as for `run`"),
        ("epsilon", float, "REAL", "epsilon to reach"),
        ("delta", float, "REAL", "delta of epsilon [default with --epsilon: that of `run`]"),
        ("samples", int, "N", "number of samples of all machines, to compare delta with"),
        ("samples-of-a-person", _parse_count, "K", GROUP_SIZE_HELP),
        ("machines-of-a-person", _parse_count, "J", "number of machines J that may hold samples of a person"),
    )
    for name, convert, metavar, text in options:
        parser.add_argument(f"--{name}", type=convert, metavar=metavar, default=SUPPRESS, help=text)


def run_command(arguments: Namespace) -> int:
    from mu2mpi.analysis.budget_conversion import convert_budget
    from mu2mpi.analysis.privacy_reports import GroupSize, check_privacy_claims

    fail, suffix = arguments.parser.error, "_of_a_person"
    budget = {name: getattr(arguments, name) for name in PRIVACY_BUDGET_OPTIONS if name in arguments}
    if bool(budget) == bool(arguments.paths):
        fail("Nothing to compute, or too much. Give either result files, or --rho, --epsilon and --delta")
    sizes = {name.removesuffix(suffix): n for name, n in vars(arguments).items() if name.endswith(suffix)}
    if sizes and budget:
        fail("Options about a person need result files. Give files instead of --rho, --epsilon and --delta")
    if "machines" in sizes and sizes["machines"] is None:
        fail("--machines-of-a-person must be a number, got all. Give the largest number of machines")
    if budget:
        print(convert_budget(budget))
        return 0
    text, problems = check_privacy_claims(arguments.paths, GroupSize(**sizes) if sizes else None)
    print(text)
    print_messages(*(f"mu2mpi: error: {problem}" for problem in problems))
    return 1 if problems else 0
