"""Limits and types that options of several owners share."""

from typing import Annotated

from pydantic import AfterValidator

# Of what is multiplied and squared later on, which must not leave the range of floating-point numbers
LEAST, MOST = 1e-100, 1e100


def check_file_name(name: str) -> str:
    """Return the name of a file, or raise ValueError if no result could hold it."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError("should be text in UTF-8; rename the file, or link to it") from None
    return name


FileName = Annotated[str | None, AfterValidator(lambda name: name and check_file_name(name))]
Switch = Annotated[bool | None, AfterValidator(lambda value: value or None)]
