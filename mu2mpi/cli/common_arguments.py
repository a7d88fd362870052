"""Options that several commands have, and what these commands do alike."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mu2mpi.core.text import warn

if TYPE_CHECKING:
    from mu2mpi.results.reader import Summary


def split(text: str) -> tuple[str, ...]:
    """Return the names of a list with commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


WHERE = "use only runs with this setting, as rho=4, or one of several, as rho=4,16; may be repeated"
VALUES = "measurements, such as auc or rmse [default: test_loss, and test_accuracy or test_r2]"
LABELS = "call a setting or a value otherwise, as rho=4:strong or rho:privacy, or as a TOML file says"
DATA_DIR = "holds one folder for each data set, such as mnist/ [default: MU2MPI_DATA_DIR, or the cache]"
SHARED: dict[str, dict[str, Any]] = {
    "--where": {"action": "append", "default": [], "metavar": "NAME=VALUE[,VALUE]", "help": WHERE},
    "--strict": {"action": "store_true", "help": "make a file that cannot be used an error, not a warning"},
    "--overwrite": {"action": "store_true", "help": "replace the output if it exists"},
    "--values": {"type": split, "default": (), "metavar": "NAMES", "help": VALUES},
    "--labels": {"action": "append", "default": [], "metavar": "NAME[=VALUE]:TEXT", "help": LABELS},
    "--data-dir": {"type": Path, "metavar": "FOLDER", "help": DATA_DIR},
}


def add_shared(parser: ArgumentParser, *options: str) -> None:
    """Add options that several commands have."""
    for option in options:
        parser.add_argument(option, **SHARED[option])


def add_flag(parser: Any, option: str, what: str) -> None:
    """Add an option that takes no value."""
    parser.add_argument(option, action="store_true", help=what)


def add_output(parser: ArgumentParser, what: str, metavar: str = "FILE", **other: Any) -> None:
    """Add where to write."""
    parser.add_argument("-o", "--output", type=Path, metavar=metavar, help=what, **other)


def add_paths(parser: ArgumentParser, nargs: str = "+", metavar: str = "PATH") -> None:
    """Add the paths of result files."""
    what = "result files, or folders of them"
    parser.add_argument("paths", type=Path, nargs=nargs, metavar=metavar, help=what)


def read_runs(arguments: Namespace) -> "tuple[list[Summary], list[str]]":
    """Read what is at the paths of a command, warn of what is skipped, and return both."""
    from mu2mpi.analysis.setting_labels import chosen
    from mu2mpi.results.result_files import check_some, find_summaries

    found, warnings = find_summaries(arguments.paths, arguments.strict)
    warn(*(f"skipped: {warning}" for warning in warnings))
    check_some(found, arguments.paths)
    return chosen(found, arguments.where), warnings
