"""The options ``--log`` and ``--log-json`` of commands that run experiments."""

import os
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mu2mpi.errors import InputError

if TYPE_CHECKING:
    from mu2mpi.execution.logs import LogFile
    from mu2mpi.parallel import Communicator


def add_logs(parser: ArgumentParser) -> None:
    """Add the files that hear how runs go."""
    what = "append a line for each evaluation and checkpoint to this file"
    parser.add_argument("--log", type=Path, metavar="FILE", help=what)
    what = "append the same as one JSON object a line"
    parser.add_argument("--log-json", type=Path, metavar="FILE", help=what)


def logs_of(arguments: Namespace, communicator: "Communicator", outputs: Sequence[Path]) -> "list[LogFile]":
    """Return the logs that were asked for; every rank raises InputError if one cannot be written.

    None may be an output, what is kept beside it, the other log, or a file that is no log.
    """
    from mu2mpi.execution.logs import LogFile
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
