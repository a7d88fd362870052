"""Ends of a run that are no failures of the program: what a user can cause, and stops at a request."""

import importlib
from typing import Any

EXIT_INTERRUPTED = 75  # Exit code of a run that stopped with a checkpoint; the same command goes on from it


class InputError(ValueError):
    """Something in the user's input cannot be used; the program shows the message and ends with code 2."""


class SharedInputError(InputError):
    """An `InputError` that every rank raises, whichever rank met it."""


class SharedOSError(OSError):
    """An `OSError` that every rank raises, whichever rank met it."""


class Interrupted(SystemExit):
    """A run stopped at a request and left a checkpoint of `rounds_done`; if not caught, the code is 75."""

    def __init__(self, rounds_done: int) -> None:
        super().__init__(EXIT_INTERRUPTED)
        self.rounds_done = rounds_done


def needed(name: str) -> Any:
    """Import a module of the extra `analysis`; InputError if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name != name.partition(".")[0]:
            raise
        raise InputError(f'{name} is not installed. Use: pip install "mu2mpi[analysis]"') from error
