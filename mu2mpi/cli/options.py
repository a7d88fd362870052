"""Turn the fields of an experiment into command-line options, and what was given back into settings."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn, get_args

from pydantic.fields import FieldInfo

from mu2mpi.config.experiment import choices, option_fields, read_toml
from mu2mpi.errors import SharedInputError

__all__ = ["Parser", "add_experiment_options", "given_settings", "merged_settings"]


METAVARS = {int: "N", float: "REAL", str: "NAME"}


class Parser(argparse.ArgumentParser):
    """A parser that raises `InputError` for bad usage, on every rank since all have the same arguments."""

    def error(self, message: str) -> NoReturn:
        """Raise the message, with the valid options where one was not known."""
        if message.startswith("unrecognized arguments"):
            options = [o for action in self._actions for o in action.option_strings if o.startswith("--")]
            message += f"\nthe options are {', '.join(options)}"
        raise SharedInputError(f"{message}\nSee: {self.prog} --help")

    def parse(self, argv: Sequence[str] | None) -> argparse.Namespace:
        """Parse, and let the subcommand that was given complain of an unknown option."""
        arguments, unknown = self.parse_known_args(argv)
        if unknown:
            arguments.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
        return arguments


def add_experiment_options(parser: argparse.ArgumentParser) -> None:
    """Add one option for each field of `Experiment`; options that are not given leave no trace."""
    group = parser.add_argument_group("the experiment (also the keys of a configuration file)")
    for name, field in option_fields().items():
        allowed = choices(field)
        group.add_argument(
            f"--{name.replace('_', '-')}",
            dest=name,
            default=argparse.SUPPRESS,
            choices=allowed,
            metavar=None if allowed else _metavar(field),
            help=_help(field),
        )


def _metavar(field: FieldInfo) -> str:
    kinds = get_args(field.annotation) or (field.annotation,)
    return "|".join(name for kind, name in METAVARS.items() if kind in kinds)


def _help(field: FieldInfo) -> str:
    text = str(field.description).replace("%", "%%")
    if field.default is None:
        return text
    default = f"{field.default:g}" if isinstance(field.default, float) else field.default
    return f"{text} [default: {default}]"


def given_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the experiment's settings that were given as options."""
    return {name: getattr(arguments, name) for name in option_fields() if hasattr(arguments, name)}


def merged_settings(config: Path | None, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of a configuration file, overridden by those given as options.

    Epsilon overrides rho, and rho epsilon.

    Raises
    ------
    InputError
        If the file cannot be read or is not TOML.
    """
    settings, given = {} if config is None else read_toml(config), given_settings(arguments)
    if "rho" in given or "epsilon" in given:
        settings = {name: value for name, value in settings.items() if name not in ("rho", "epsilon")}
    return {**settings, **given}
