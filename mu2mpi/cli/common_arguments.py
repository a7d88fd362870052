"""Command-line options, and reading of result files, that several commands share."""

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mu2mpi.core.errors import InputError
from mu2mpi.core.files import write_atomically
from mu2mpi.core.text import warn

if TYPE_CHECKING:
    from mu2mpi.results.reader import RunSummary


def split_names(text: str) -> tuple[str, ...]:
    """Split text such as "auc, rmse" at commas into names without spaces."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


RUN_FILTER_HELP = "settings of the runs to use, such as rho=4,16,server=trusted; may be repeated"
MEASUREMENTS_HELP = "measurements, such as auc or rmse [default: test_loss, and test_accuracy or test_r2]"
DATA_DIR_HELP = "folder of data sets, such as mnist/ [default: MU2MPI_DATA_DIR, or the cache]"
SHARED_ARGPARSE_KEYWORDS: dict[str, dict[str, Any]] = {
    "--where": {"action": "append", "default": [], "metavar": "NAME=VALUE,...", "help": RUN_FILTER_HELP},
    "--strict": {"action": "store_true", "help": "error instead of a warning for files that cannot be used"},
    "--overwrite": {"action": "store_true", "help": "replacement of existing output files"},
    "--values": {"type": split_names, "default": (), "metavar": "NAMES", "help": MEASUREMENTS_HELP},
    "--data-dir": {"type": Path, "metavar": "FOLDER", "help": DATA_DIR_HELP},
}


def add_shared_options(parser: ArgumentParser, *options: str) -> None:
    """Add options of SHARED_ARGPARSE_KEYWORDS, such as --where, to a parser."""
    for option in options:
        parser.add_argument(option, **SHARED_ARGPARSE_KEYWORDS[option])


def add_flag(parser: Any, option: str, help_text: str) -> None:
    """Add a boolean option, a flag without a value, to a parser."""
    parser.add_argument(option, action="store_true", help=help_text)


def add_output(parser: ArgumentParser, help_text: str, metavar: str = "FILE", **keywords: Any) -> None:
    """Add the option -o, --output, for a file or folder, to a parser."""
    parser.add_argument("-o", "--output", type=Path, metavar=metavar, help=help_text, **keywords)


def add_paths(parser: ArgumentParser, nargs: str = "+", metavar: str = "PATH") -> None:
    """Add the positional arguments for paths of result files or folders to a parser."""
    parser.add_argument("paths", type=Path, nargs=nargs, metavar=metavar, help="result files or folders")


def read_runs(arguments: Namespace) -> "tuple[list[RunSummary], list[str]]":
    """Read the results at a command's paths; return the runs that --where selects, and warnings."""
    from mu2mpi.analysis.setting_labels import select_runs
    from mu2mpi.results.result_files import load_summaries, require_results

    runs, warnings = load_summaries(arguments.paths, arguments.strict)
    warn(*(f"skipped: {warning}" for warning in warnings))
    require_results(runs, arguments.paths)
    return select_runs(runs, arguments.where), warnings


def write_texts(folder: Path, texts: Mapping[str, str], overwrite: bool) -> None:
    """Write texts into a folder and print their paths; InputError before the first if one cannot be written.

    Without `overwrite`, only files with the same content may exist.
    """
    from mu2mpi.results.writer import check_output

    contents = {folder / name: text.encode() for name, text in texts.items()}
    for path in contents:
        check_output(path, overwrite=True)
    differing = [str(path) for path, text in contents.items() if path.exists() and path.read_bytes() != text]
    if differing and not overwrite:
        existing = ", ".join(differing)
        raise InputError(f"cannot write files that exist: {existing}. Use --overwrite to replace them")
    for path, content in contents.items():
        write_atomically(path, [content])
        print(path)
