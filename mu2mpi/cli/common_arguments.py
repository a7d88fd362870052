"""Options and input shared by several commands."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mu2mpi.core.text import warn

if TYPE_CHECKING:
    from mu2mpi.results.reader import RunSummary


def split_names(text: str) -> tuple[str, ...]:
    """Split a list of names at commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


WHERE_HELP = "setting of the runs to use, such as rho=4, or rho=4,16; may be repeated"
VALUES_HELP = "measurements, such as auc or rmse [default: test_loss, and test_accuracy or test_r2]"
LABELS_HELP = "name of a setting or value, such as rho=4:strong or rho:privacy, or a TOML file"
DATA_DIR_HELP = "folder of data sets, such as mnist/ [default: MU2MPI_DATA_DIR, or the cache]"
SHARED_ARGUMENTS: dict[str, dict[str, Any]] = {
    "--where": {"action": "append", "default": [], "metavar": "NAME=VALUE[,VALUE]", "help": WHERE_HELP},
    "--strict": {"action": "store_true", "help": "error instead of a warning for files that cannot be used"},
    "--overwrite": {"action": "store_true", "help": "replacement of an existing output"},
    "--values": {"type": split_names, "default": (), "metavar": "NAMES", "help": VALUES_HELP},
    "--labels": {"action": "append", "default": [], "metavar": "NAME[=VALUE]:TEXT", "help": LABELS_HELP},
    "--data-dir": {"type": Path, "metavar": "FOLDER", "help": DATA_DIR_HELP},
}


def add_shared(parser: ArgumentParser, *options: str) -> None:
    """Add shared options by flag."""
    for option in options:
        parser.add_argument(option, **SHARED_ARGUMENTS[option])


def add_flag(parser: Any, option: str, text: str) -> None:
    """Add an option without a value."""
    parser.add_argument(option, action="store_true", help=text)


def add_output(parser: ArgumentParser, text: str, metavar: str = "FILE", **other: Any) -> None:
    """Add the option for the output file or folder."""
    parser.add_argument("-o", "--output", type=Path, metavar=metavar, help=text, **other)


def add_paths(parser: ArgumentParser, nargs: str = "+", metavar: str = "PATH") -> None:
    """Add the operands that name result files or folders."""
    text = "result files or folders"
    parser.add_argument("paths", type=Path, nargs=nargs, metavar=metavar, help=text)


def read_runs(arguments: Namespace) -> "tuple[list[RunSummary], list[str]]":
    """Read results at the paths of a command; return those that --where selects, and warnings."""
    from mu2mpi.analysis.setting_labels import select_runs
    from mu2mpi.results.result_files import load_summaries, require_results

    runs, warnings = load_summaries(arguments.paths, arguments.strict)
    warn(*(f"skipped: {warning}" for warning in warnings))
    require_results(runs, arguments.paths)
    return select_runs(runs, arguments.where), warnings
