"""Command-line arguments of `run` and `sweep`, and the experiments and sweeps built from them."""

from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

from pydantic.fields import FieldInfo

from mu2mpi.cli.common_arguments import add_flag, add_shared_options
from mu2mpi.config.experiment import Experiment
from mu2mpi.config.experiment_options import option_fields
from mu2mpi.config.sweep import Sweep, result_name
from mu2mpi.core.errors import InputError
from mu2mpi.core.options import CHECKPOINT_INTERVAL_SECONDS, choices, is_flag, registry_kind
from mu2mpi.core.parallel import Communicator
from mu2mpi.core.text import warn
from mu2mpi.core.toml import read_toml

METAVARS = {int: "N", float: "REAL", str: "NAME"}


def add_run_options(parser: ArgumentParser, overwrite_help: str) -> None:
    """Add the options of experiments and checkpoints, which `run` and `sweep` share, to a parser."""
    add_flag(parser, "--overwrite", overwrite_help)
    add_shared_options(parser, "--data-dir")
    seconds = CHECKPOINT_INTERVAL_SECONDS
    interval = f"time between checkpoints; Ctrl-C and SIGTERM write one [default: {seconds:g}]"
    parser.add_argument("--checkpoint-every", type=float, default=seconds, metavar="SECONDS", help=interval)
    for name, field in option_fields().items():
        add_field(parser, name, field)


def option_string(option_name: str) -> str:
    """Return the command-line flag of an option, such as --clip-norm for clip_norm."""
    return f"--{option_name.replace('_', '-')}"


def help_text(field: FieldInfo) -> str:
    """Return the argparse help of an option: its description and default."""
    text, default = str(field.description).replace("%", "%%"), field.default
    default = f"{default:g}" if isinstance(default, float) else default
    return text if default is None else f"{text} [default: {default}]"


def add_field(parser: Any, name: str, field: FieldInfo, **overrides: Any) -> None:
    """Add the option of a field to a parser, without a default; `overrides` are for ``add_argument``."""
    types = (field.annotation, *get_args(field.annotation))
    metavars = [metavar for value_type, metavar in METAVARS.items() if value_type in types]
    allowed = overrides.get("choices", choices(field))
    lists_choices = allowed and registry_kind(field) is None
    value = {"choices": allowed, "metavar": None if lists_choices else "|".join(metavars or ["NAME"])}
    keywords = {"action": "store_true"} if is_flag(field) else value
    keywords = {"default": SUPPRESS, "help": help_text(field), **keywords, **overrides}
    parser.add_argument(option_string(name), dest=name, **keywords)


def prepare_run(arguments: Namespace, communicator: Communicator) -> dict[str, Any]:
    """Check the arguments of `run` and `run_sweep`, and return them as keyword arguments."""
    if not arguments.checkpoint_every > 0:
        arguments.parser.error(f"--checkpoint-every must be positive, got {arguments.checkpoint_every:g}")
    from mu2mpi.execution.environment import kernel_cache_folder

    if communicator.rank == 0 and kernel_cache_folder() is None:
        warn("compiled kernels cannot be cached. Set NUMBA_CACHE_DIR to a writable folder")
    return {name: getattr(arguments, name) for name in ("data_dir", "overwrite", "checkpoint_every")}


def explicit_settings(arguments: Namespace) -> dict[str, Any]:
    """Return the settings of an experiment that the command line gives as options, by name."""
    return {name: getattr(arguments, name) for name in option_fields() if hasattr(arguments, name)}


def merged_settings(config: Path | None, arguments: Namespace) -> dict[str, Any]:
    """Return the settings of a TOML file, overridden by options; --rho and --epsilon override both."""
    settings, overrides = {} if config is None else read_toml(config), explicit_settings(arguments)
    if "part" in settings:
        raise InputError(f"{config} has [[part]] tables, so it is a sweep. Use `mu2mpi sweep` for it")
    if "rho" in overrides or "epsilon" in overrides:
        settings = {name: value for name, value in settings.items() if name not in ("rho", "epsilon")}
    return {**settings, **overrides}


def build_experiment(arguments: Namespace) -> Experiment:
    """Build the experiment of the command `run` from its arguments."""
    return Experiment.from_settings(merged_settings(arguments.config, arguments), str(arguments.config or ""))


def output_path(arguments: Namespace, experiment: Experiment, ranks: int) -> Path:
    """Return the path of the result file of `run`; by default runs/ and a name made of the settings."""
    machines = experiment.machines or ranks
    return arguments.output or Path("runs") / result_name(experiment.replace_unvalidated(machines=machines))


def select_runs_of_sweep(arguments: Namespace) -> tuple[Sweep, list[tuple[int, Experiment]]]:
    """Return the sweep that the arguments define, and pairs (index, experiment) of the selected runs."""
    config, overrides = arguments.config, explicit_settings(arguments)
    if arguments.methods is not None:
        overrides["methods"] = arguments.methods
    elif config is None:
        raise InputError("nothing to run. Give a TOML file, or --methods all")
    # The parties of other trust modes see all runs of a selection.
    defaults = {} if arguments.select is None else {"server": "trusted"}
    settings = {} if config is None else read_toml(config)
    sweep = Sweep({**defaults, **settings}, str(config or ""), overrides)
    return sweep, sweep.select_runs(arguments.index, arguments.part)


def warn_about_unprotected_test_sets(experiments: Iterable[Experiment]) -> None:
    """Print a warning if a run with a secret key has an unprotected test set from the user's data file."""
    from mu2mpi.analysis.description import PRIVATE_TEST_WARNING

    if any(experiment.has_unprotected_test_set and experiment.seed is None for experiment in experiments):
        print(f"not private: {PRIVATE_TEST_WARNING[0].lower()}{PRIVATE_TEST_WARNING[1:]}")
