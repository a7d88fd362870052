"""Base class of options, and the limits and names that several of them share."""

from typing import Any

from pydantic import BaseModel, ConfigDict

from mu2mpi.core.registry import names
from mu2mpi.core.suggestions import did_you_mean

# Of what is multiplied and squared later on, which must not leave the range of floating-point numbers
LEAST, MOST = 1e-100, 1e100


class Options(BaseModel):
    """Options that a thing has beside those of every experiment; each with a default and a description."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        for name, field in cls.model_fields.items():
            if field.is_required() or not field.description:
                raise TypeError(f"the option {name} of {cls.__name__} needs a default and a description")
        if not cls.__module__.startswith("mu2mpi."):
            # What is wrong with options of an extension is said when that is imported.
            cls.model_rebuild()


def registered(kind: str, name: str | None) -> str | None:
    """Return a name that an option may have, None or one of its kind; ValueError for another."""
    known = names(kind)
    if name is not None and name not in known:
        meant = did_you_mean(name, known) or "; what is not among these is not installed here"
        raise ValueError(f"should be {', '.join(known)}{meant}")
    return name


def check_file_name(name: str) -> str:
    """Return the name of a file; ValueError if no result could hold it."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError("should be text in UTF-8; rename the file, or link to it") from None
    return name
