"""Base class of groups of command-line options, facts about their fields, and shared validators."""

from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo

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


def registry_kind(field: FieldInfo) -> str | None:
    """Return the registry kind, such as "methods", of an option's values; None if they are not registered."""
    extra = field.json_schema_extra
    kind = extra.get("kind", extra.get("forms")) if isinstance(extra, dict) else None
    return None if kind is None else str(kind)


def help_details(field: FieldInfo) -> str:
    """Return the sentences that ``--help OPTION`` shows after the description of an option."""
    extra = field.json_schema_extra
    return str(extra.get("details", "")) if isinstance(extra, dict) else ""


def choices(field: FieldInfo) -> tuple[str, ...] | None:
    """Return the fixed values of an option; None for numbers, files and forms such as labels:N."""
    extra = field.json_schema_extra
    if isinstance(extra, dict) and "kind" in extra:
        return tuple(known_names(str(extra["kind"])))
    types = (field.annotation, *get_args(field.annotation))
    literal = next((annotation for annotation in types if get_origin(annotation) is Literal), None)
    return get_args(literal) if literal else None


def is_flag(field: FieldInfo) -> bool:
    """Return whether an option is boolean, that is, a command-line flag without a value."""
    return bool in (field.annotation, *get_args(field.annotation))
