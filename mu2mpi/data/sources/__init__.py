"""One module a source of data, which knows how to open it by an experiment's options."""

from importlib import import_module

from mu2mpi.config.experiment import is_file
from mu2mpi.data.source import Source

__all__ = ["source_class"]

CLASSES = {
    "digits": "Digits",
    "mnist": "Mnist",
    "population": "Population",
    "synthetic": "Synthetic",
    "user_file": "UserFile",
}
"""By module."""


def source_class(data: str) -> type[Source]:
    """Return the class of what an experiment's option `data` names; a run imports no other source."""
    module = "user_file" if is_file(data) else data
    found: type[Source] = getattr(import_module(f"{__name__}.{module}"), CLASSES[module])
    return found
