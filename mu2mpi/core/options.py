"""Base class of option groups, and validation that several options share."""

from typing import Any

from pydantic import BaseModel, ConfigDict

from mu2mpi.core.registry import known_names
from mu2mpi.core.suggestions import did_you_mean

# Bounds of numeric options, such that products and squares of them neither overflow nor underflow in float64
MIN_NUMBER = 1e-100
MAX_NUMBER = 1e100


class Options(BaseModel):
    """Options of a method, mechanism, source, ...: pydantic fields, each with a default and a description."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        for name, field in cls.model_fields.items():
            if field.is_required() or not field.description:
                raise TypeError(f"the option {name} of {cls.__name__} needs a default and a description")
        if not cls.__module__.startswith("mu2mpi."):
            # Build the validator now, so that errors in an extension surface at its import.
            cls.model_rebuild()


def check_registered_name(kind: str, name: str | None) -> str | None:
    """Return the name if it is registered under the kind, or None; ValueError for unknown names."""
    known = known_names(kind)
    if name is not None and name not in known:
        hint = did_you_mean(name, known) or "; other names are not installed here"
        raise ValueError(f"should be {', '.join(known)}{hint}")
    return name


def check_file_name(name: str) -> str:
    """Return a file name; ValueError if it is not UTF-8, since results store it as an attribute."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError("should be text in UTF-8; rename the file, or link to it") from None
    return name
