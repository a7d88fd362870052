"""Base class of groups of command-line options, and validators, bounds and defaults that several share."""

from typing import Any

from pydantic import BaseModel, ConfigDict

from mu2mpi.core.registry import known_names
from mu2mpi.core.suggestions import did_you_mean, one_of

# Bounds of numeric options, such that products and squares of them neither overflow nor underflow in float64
MIN_REAL_OPTION = 1e-100
MAX_REAL_OPTION = 1e100
CHECKPOINT_INTERVAL_SECONDS = 300.0  # Default interval between two checkpoints


class Options(BaseModel):
    """Options of a component, such as a method or source: pydantic fields with defaults and descriptions."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        for name, field in cls.model_fields.items():
            if field.is_required() or not field.description:
                raise TypeError(f"the option {name} of {cls.__name__} needs a default and a description")
        if not cls.__module__.startswith("mu2mpi."):
            cls.model_rebuild()  # Errors in an extension surface at its import.


def check_registered_name(kind: str, name: str | None) -> str | None:
    """Return a component name if it is registered under its kind, or is None; ValueError otherwise."""
    registered_names = known_names(kind)
    if name is not None and name not in registered_names:
        hint = did_you_mean(name, registered_names) or "; other names are not installed here"
        raise ValueError(f"should be {one_of(registered_names)}{hint}")
    return name


def check_file_name(name: str) -> str:
    """Return a file name; ValueError if the name is not UTF-8 and so cannot be an HDF5 attribute."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError("should be text in UTF-8; rename the file, or link to it") from None
    return name
