"""Packages that only analysis needs, imported where they are needed."""

import importlib
from typing import Any

from mu2mpi.core.errors import InputError


def needed(name: str) -> Any:
    """Import a module of the extra `analysis`; InputError if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name != name.partition(".")[0]:
            raise
        raise InputError(f'{name} is not installed. Use: pip install "mu2mpi[analysis]"') from error
