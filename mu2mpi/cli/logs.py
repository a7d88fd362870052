"""The options ``--log`` and ``--log-json`` of commands that run experiments."""

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mu2mpi.errors import InputError

if TYPE_CHECKING:
    from mu2mpi.execution.logs import Log
    from mu2mpi.parallel import Communicator


def add_logs(parser: ArgumentParser) -> None:
    """Add the files that hear how runs go."""
    what = "append a line for each evaluation and checkpoint to this file"
    parser.add_argument("--log", type=Path, metavar="FILE", help=what)
    what = "append the same as one JSON object a line"
    parser.add_argument("--log-json", type=Path, metavar="FILE", help=what)


def logs_of(arguments: Namespace, communicator: "Communicator", outputs: Sequence[Path]) -> "list[Log]":
    """Return the logs that were asked for; every rank raises InputError if one cannot be written.

    None may be an output, or what is kept beside it.
    """
    from mu2mpi.execution.logs import JsonLog, PlainLog
    from mu2mpi.results.schema import checkpoint_path, previous_path

    kept = [checkpoint_path(output) for output in outputs]
    taken = [*outputs, *kept, *map(previous_path, kept)]
    kinds = ((PlainLog, arguments.log), (JsonLog, arguments.log_json))
    logs: list[Log] = [kind(path) for kind, path in kinds if path is not None]
    with communicator.together():
        if communicator.rank == 0:
            for log in logs:
                log.check(taken)
            if len(logs) == 2 and os.path.realpath(arguments.log) == os.path.realpath(arguments.log_json):
                raise InputError("--log and --log-json name one file; lines of two kinds need two")
    return logs
