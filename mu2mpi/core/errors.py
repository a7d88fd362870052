"""Exceptions for user input and interrupted runs, their exit codes, and imports of optional packages."""

import importlib
from typing import Any

EXIT_INTERRUPTED = 75  # Exit code of a run that stopped with a checkpoint; the same command resumes it


class InputError(ValueError):
    """Invalid user input; the command prints the message and exits with code 2."""


class MissingPackageError(InputError):
    """Use of an optional package that is not installed."""


class CollectiveInputError(InputError):
    """`InputError` of one rank, raised again on every rank by `Communicator.collective_errors`."""


class CollectiveOSError(OSError):
    """`OSError` of one rank, raised again on every rank by `Communicator.collective_errors`."""


class Interrupted(SystemExit):
    """Exit with code 75 of a run that stopped on request and wrote a checkpoint of `rounds_done` rounds."""

    def __init__(self, rounds_done: int) -> None:
        super().__init__(EXIT_INTERRUPTED)
        self.rounds_done = rounds_done


def import_extra(module_name: str, extra: str = "analysis") -> Any:
    """Import a module of the packages in ``mu2mpi[extra]``; MissingPackageError if it is not installed."""
    try:
        return importlib.import_module(module_name)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name != module_name.partition(".")[0]:
            raise
        message = f'{module_name} is not installed. Use: pip install "mu2mpi[{extra}]"'
        raise MissingPackageError(message) from error
