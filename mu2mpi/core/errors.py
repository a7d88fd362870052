"""Exceptions with exit codes of their own, and imports of optional dependencies."""

import importlib
from typing import Any

EXIT_INTERRUPTED = 75  # Exit code of a run that stopped with a checkpoint; the same command resumes it


class InputError(ValueError):
    """Invalid user input; the command prints the message and exits with code 2."""


class SharedInputError(InputError):
    """`InputError` raised on every rank, after it occurred on at least one (`Communicator.shared_errors`)."""


class SharedOSError(OSError):
    """`OSError` raised on every rank, after it occurred on at least one (`Communicator.shared_errors`)."""


class Interrupted(SystemExit):
    """A run stopped on request after writing a checkpoint of `rounds_done` rounds; exits with code 75."""

    def __init__(self, rounds_done: int) -> None:
        super().__init__(EXIT_INTERRUPTED)
        self.rounds_done = rounds_done


def import_extra(name: str) -> Any:
    """Import a module of the optional dependencies ``mu2mpi[analysis]``; InputError if not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name != name.partition(".")[0]:
            raise
        raise InputError(f'{name} is not installed. Use: pip install "mu2mpi[analysis]"') from error
