"""Packages that only analysis needs, imported where they are needed."""

import importlib
from typing import Any

from mu2mpi.errors import InputError


def needed(name: str) -> Any:
    """Import a module of the extra `analysis`, or raise an InputError that says how to install it."""
    package = name.partition(".")[0]
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name != package:
            raise
        how = 'install what analysis needs with: pip install "mu2mpi[analysis]"'
        raise InputError(f"this needs the package {package}; {how}") from error
