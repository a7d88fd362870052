"""The options ``--log`` and ``--log-json`` of commands that run experiments."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mu2mpi.execution.logs import Log
    from mu2mpi.parallel import Communicator


def add_logs(parser: ArgumentParser) -> None:
    """Add the files that hear how runs go."""
    what = "append a line for each evaluation and checkpoint to this file"
    parser.add_argument("--log", type=Path, metavar="FILE", help=what)
    what = "append the same as one JSON object a line"
    parser.add_argument("--log-json", type=Path, metavar="FILE", help=what)


def logs_of(arguments: Namespace, communicator: "Communicator") -> "list[Log]":
    """Return the logs that were asked for; every rank raises OSError if one cannot be written."""
    from mu2mpi.execution.logs import JsonLog, PlainLog

    kinds = ((PlainLog, arguments.log), (JsonLog, arguments.log_json))
    logs: list[Log] = [kind(path) for kind, path in kinds if path is not None]
    with communicator.together():
        if communicator.rank == 0:
            for log in logs:
                log.check()
    return logs
