"""Turn the fields of an experiment into command-line options, and what was given back into settings."""

import math
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path
from typing import Any, get_args

from pydantic.fields import FieldInfo

from mu2mpi.cli.shared import add_data_dir
from mu2mpi.config.options import choices, option_fields, takes_boolean
from mu2mpi.errors import EXIT_INTERRUPTED, InputError
from mu2mpi.execution.signals import CHECKPOINT_SECONDS
from mu2mpi.registry import find, names
from mu2mpi.toml import read_toml

RUNNING = ("data_dir", "overwrite", "checkpoint_every")
"""Options of `run` and `sweep` that are none of an experiment."""

METAVARS = {int: "N", float: "REAL", str: "NAME"}


def add_running_options(parser: ArgumentParser) -> None:
    """Add what `run` and `sweep` share: above all one option for each of an experiment."""
    add_data_dir(parser)
    parser.add_argument(
        "--checkpoint-every",
        type=_positive_seconds,
        default=CHECKPOINT_SECONDS,
        metavar="SECONDS",
        help="time between two checkpoints, from which the same command goes on after a kill "
        f"[default: {CHECKPOINT_SECONDS:g}]; Ctrl-C, SIGTERM, SIGUSR1 or SIGUSR2 makes one at once and ends "
        f"the run with code {EXIT_INTERRUPTED}",
    )
    group = parser.add_argument_group("the experiment (also the keys of a configuration file)")
    for name in option_fields():
        add_field(group, name)


def _positive_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not seconds > 0:
        raise ArgumentTypeError(f"{text!r} is not a positive number of seconds")
    return seconds


def add_field(parser: Any, name: str, **other: Any) -> None:
    """Add an option that leaves no trace if it is not given; `other` replaces what follows from its field."""
    field = option_fields()[name]
    kinds = (field.annotation, *get_args(field.annotation))
    allowed = other.get("choices", choices(field))
    words = [word for kind, word in METAVARS.items() if kind in kinds]
    metavar = None if allowed else "|".join(words or ["NAME"])
    follows: dict[str, Any] = {"default": SUPPRESS, "help": _help(field)}
    if takes_boolean(field):
        follows |= {"action": "store_true"}
    else:
        follows |= {"choices": allowed, "metavar": metavar}
    parser.add_argument(f"--{name.replace('_', '-')}", dest=name, **{**follows, **other})


def _help(field: FieldInfo) -> str:
    text = str(field.description).replace("%", "%%") + _summaries(field)
    if field.default is None:
        return text
    default = f"{field.default:g}" if isinstance(field.default, float) else field.default
    return f"{text} [default: {default}]"


def _summaries(field: FieldInfo) -> str:
    """Return a few words about each thing that an option chooses, where they come without slow imports."""
    extra = field.json_schema_extra
    kind = str(extra["kind"]) if isinstance(extra, dict) else None
    if kind not in ("methods", "servers"):
        return ""
    told = {name: find(kind, name).summary for name in names(kind)}
    return ": " + "; ".join(", ".join(filter(None, both)) for both in told.items())


def given_settings(arguments: Namespace) -> dict[str, Any]:
    """Return the experiment's settings that were given as options."""
    return {name: getattr(arguments, name) for name in option_fields() if hasattr(arguments, name)}


def merged_settings(config: Path | None, arguments: Namespace) -> dict[str, Any]:
    """Return a file's settings, overridden by those given; epsilon overrides rho, and rho epsilon."""
    settings, given = {} if config is None else read_toml(config), given_settings(arguments)
    if "part" in settings:
        raise InputError(f"{config} has [[part]] tables, which make a sweep: give it to `mu2mpi sweep`")
    if "rho" in given or "epsilon" in given:
        settings = {name: value for name, value in settings.items() if name not in ("rho", "epsilon")}
    return {**settings, **given}
