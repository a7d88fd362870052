"""The options of commands that run experiments: those of an experiment, and how it is run."""

import os
import re
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from pydantic.fields import FieldInfo

from mu2mpi.cli.common_arguments import add_flag, add_shared
from mu2mpi.config.experiment import Experiment
from mu2mpi.config.experiment_options import choices, option_fields, takes_boolean
from mu2mpi.config.sweep import Sweep, result_name
from mu2mpi.core.errors import EXIT_INTERRUPTED, InputError
from mu2mpi.core.registry import find, names
from mu2mpi.core.text import warn
from mu2mpi.core.toml import read_toml
from mu2mpi.execution.signals import CHECKPOINT_SECONDS

if TYPE_CHECKING:
    from mu2mpi.core.parallel import Communicator

# Kinds whose modules are imported fast enough for the help to give their summaries
SUMMARISED = ("methods", "servers", "presets", "sources", "partitions", "participation")
METAVARS = {int: "N", float: "REAL", str: "NAME"}


def add_running_options(parser: ArgumentParser, overwrite: str = "replace the output if it exists") -> None:
    """Add what `run` and `sweep` share: above all one option for each of an experiment."""
    add_flag(parser, "--overwrite", overwrite)
    parser.add_argument("--log", type=Path, metavar="FILE", help="text log of evaluations and checkpoints")
    parser.add_argument("--log-json", type=Path, metavar="FILE", help="the same as a JSON object a line")
    add_shared(parser, "--data-dir")
    parser.add_argument(
        "--checkpoint-every",
        type=float,
        default=CHECKPOINT_SECONDS,
        metavar="SECONDS",
        help=f"time between checkpoints [default: {CHECKPOINT_SECONDS:g}]; Ctrl-C, SIGTERM, SIGUSR1 or "
        f"SIGUSR2 makes one at once and ends the run with code {EXIT_INTERRUPTED}",
    )
    group = parser.add_argument_group("the experiment (also the keys of a configuration file)")
    for name, field in option_fields().items():
        add_field(group, name, field)


def add_field(parser: Any, name: str, field: FieldInfo, **other: Any) -> None:
    """Add an option that leaves no trace if it is not given; `other` replaces what follows from its field."""
    text, extra = str(field.description).replace("%", "%%"), field.json_schema_extra
    if isinstance(extra, dict) and (kind := str(extra.get("kind", extra.get("forms")))) in SUMMARISED:
        things = [find(kind, name) for name in names(kind)]
        told = [", ".join(filter(None, (getattr(one, "form", one.name), one.summary))) for one in things]
        text, bracket, default = text.partition(" [default")
        text += f": {'; '.join(told)}{bracket}{default}"
    if field.default is not None:
        default = f"{field.default:g}" if isinstance(field.default, float) else field.default
        text += f" [default: {default}]"
    kinds = (field.annotation, *get_args(field.annotation))
    allowed = other.get("choices", choices(field))
    words = [word for kind, word in METAVARS.items() if kind in kinds]
    metavar = None if allowed else "|".join(words or ["NAME"])
    how = {"action": "store_true"} if takes_boolean(field) else {"choices": allowed, "metavar": metavar}
    follows = {"default": SUPPRESS, "help": text, **how, **other}
    parser.add_argument(f"--{name.replace('_', '-')}", dest=name, **follows)


def how_to_run(arguments: Namespace, communicator: "Communicator", outputs: Sequence[Path]) -> dict[str, Any]:
    """Start the compiler, try the logs; return what `run` and `sweep` are told beside the experiment."""
    if not arguments.checkpoint_every > 0:
        arguments.parser.error("--checkpoint-every takes a positive number of seconds")
    from mu2mpi.execution.environment import kernel_cache
    from mu2mpi.execution.progress import LogFile
    from mu2mpi.execution.warmup import start_compiler_without_scipy
    from mu2mpi.results.records import checkpoint_path, previous_path

    start_compiler_without_scipy()
    if communicator.rank == 0 and kernel_cache() is None:
        warn("compiled kernels cannot be kept: set NUMBA_CACHE_DIR to a folder that can be written")
    kept = [checkpoint_path(output) for output in outputs]
    taken = {os.path.realpath(path) for path in (*outputs, *kept, *map(previous_path, kept))}
    wanted = ((arguments.log, False), (arguments.log_json, True))
    logs = [(path, as_json) for path, as_json in wanted if path is not None]
    with communicator.together():
        for path, as_json in logs if communicator.rank == 0 else ():
            _check_log(path, taken, rb"\{" if as_json else rb"\d{4}-\d\d-\d\dT")
            taken.add(os.path.realpath(path))
    told = {name: getattr(arguments, name) for name in ("data_dir", "overwrite", "checkpoint_every")}
    return {"observers": [LogFile(path, as_json) for path, as_json in logs], **told}


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


def experiment_of(arguments: Namespace) -> Experiment:
    """Return the experiment of `run`."""
    return Experiment.make(merged_settings(arguments.config, arguments), str(arguments.config or ""))


def output_of(arguments: Namespace, experiment: Experiment, ranks: int) -> Path:
    """Return the result file of `run`."""
    machines = experiment.machines or ranks
    return arguments.output or Path("runs") / result_name(experiment.derived(machines=machines))


def chosen_of(arguments: Namespace) -> tuple[Sweep, list[tuple[int, Experiment]]]:
    """Return the sweep of `sweep`, and those of its experiments that are to be run."""
    config, given = arguments.config, given_settings(arguments)
    if arguments.methods is not None:
        given["methods"] = arguments.methods
    elif config is None:
        raise InputError("there is nothing to run: give a TOML file, or --methods all")
    sweep = Sweep({} if config is None else read_toml(config), str(config or ""), given)
    return sweep, sweep.choose(arguments.index, arguments.part)


def warn_of_tests(experiments: Iterable[Experiment]) -> None:
    """Say what is not protected of runs that are private but for their test set."""
    from mu2mpi.analysis.description import TEST_SHARE

    if any(experiment.tests_on_a_share and experiment.seed is None for experiment in experiments):
        print(f"not private: {TEST_SHARE[0].lower()}{TEST_SHARE[1:]}")
