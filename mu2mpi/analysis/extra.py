"""Packages that only analysis needs, imported when it begins."""

import importlib
from typing import Any

from mu2mpi.errors import InputError

__all__ = ["needed"]


def needed(name: str) -> Any:
    """Import a module of the extra `analysis`.

    Raises
    ------
    InputError
        If it is not installed; the message says how to install it.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name != name.partition(".")[0]:
            raise
        raise InputError(
            f"this needs the package {name.partition('.')[0]}; install what analysis needs with: "
            'pip install "mu2mpi[analysis]"'
        ) from error
