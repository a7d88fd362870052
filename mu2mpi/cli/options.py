"""The options of commands that run experiments: those of an experiment, and how it is run."""

import math
import os
import re
import sys
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from pydantic.fields import FieldInfo

from mu2mpi.cli.shared import add_data_dir, add_flag
from mu2mpi.config.options import choices, option_fields, takes_boolean
from mu2mpi.errors import EXIT_INTERRUPTED, InputError
from mu2mpi.execution.signals import CHECKPOINT_SECONDS
from mu2mpi.registry import find, names
from mu2mpi.toml import read_toml

if TYPE_CHECKING:
    from mu2mpi.execution.progress import LogFile
    from mu2mpi.parallel import Communicator

METAVARS = {int: "N", float: "REAL", str: "NAME"}


def add_running_options(parser: ArgumentParser, overwrite: str = "replace the output if it exists") -> None:
    """Add what `run` and `sweep` share: above all one option for each of an experiment."""
    add_flag(parser, "--overwrite", overwrite)
    what = "append a line for each evaluation and checkpoint to this file"
    parser.add_argument("--log", type=Path, metavar="FILE", help=what)
    what = "append the same as one JSON object a line"
    parser.add_argument("--log-json", type=Path, metavar="FILE", help=what)
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


def how_to_run(arguments: Namespace, communicator: "Communicator", outputs: Sequence[Path]) -> dict[str, Any]:
    """Start the compiler; return what `run` and `sweep` are told beside the experiment."""
    from mu2mpi.execution.environment import kernel_cache
    from mu2mpi.execution.warmup import start_compiler_without_scipy

    start_compiler_without_scipy()
    if communicator.rank == 0 and kernel_cache() is None:
        print(
            "mu2mpi: warning: no folder for compiled kernels can be written, so every rank compiles them "
            "each time; set NUMBA_CACHE_DIR to one that can",
            file=sys.stderr,
            flush=True,
        )
    told = {name: getattr(arguments, name) for name in ("data_dir", "overwrite", "checkpoint_every")}
    return {"observers": _logs_of(arguments, communicator, outputs), **told}


def _logs_of(arguments: Namespace, communicator: "Communicator", outputs: Sequence[Path]) -> "list[LogFile]":
    """Return the logs that were asked for; every rank raises InputError if one cannot be written."""
    from mu2mpi.execution.progress import LogFile
    from mu2mpi.results.schema import checkpoint_path, previous_path

    kept = [checkpoint_path(output) for output in outputs]
    taken = {os.path.realpath(path) for path in (*outputs, *kept, *map(previous_path, kept))}
    paths = {False: arguments.log, True: arguments.log_json}
    with communicator.together():
        for as_json, path in paths.items() if communicator.rank == 0 else ():
            if path is not None:
                _check_log(path, taken, rb"\{" if as_json else rb"\d{4}-\d\d-\d\dT")
                taken.add(os.path.realpath(path))
    return [LogFile(path, as_json) for as_json, path in paths.items() if path is not None]


def _check_log(path: Path, taken: set[str], begins: bytes) -> None:
    if os.path.realpath(path) in taken:
        raise InputError(f"{path} is what the command itself writes; name another file as its log")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab"):
            pass
        # Nothing is read from a device or a pipe.
        if path.is_file():
            with path.open("rb") as file:
                start = file.read(64)
            if start and not re.match(begins, start):
                raise InputError(f"{path} is there and is no log of this kind; name another file")
    except OSError as error:
        raise InputError(f"cannot write the log {path}: {error.strerror}") from None


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
