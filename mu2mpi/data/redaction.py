"""Messages about files of the user's: what is wrong with them, and where only if the data are public."""

import gzip
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from mu2mpi.core.errors import InputError
from mu2mpi.core.files import Identity, identity

MOST_NAMES = 20  # names that a message lists


class DataError(InputError):
    """Something is wrong with what a file holds: `exact` names rows and values, and the message does not."""

    def __init__(self, message: str, exact: str) -> None:
        super().__init__(f"{message} (if the data are public, --data-is-public says where)")
        self.exact = exact


@contextmanager
def telling(public: bool) -> Iterator[None]:
    """Say what exactly is wrong with data that are public."""
    try:
        yield
    except DataError as fault:
        if not public:
            raise
        raise InputError(fault.exact) from fault.__cause__


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn whatever goes wrong while a user's file is read into an InputError that names it."""
    try:
        yield
    except InputError:
        raise
    except MemoryError:
        raise InputError(f"{path} does not fit into memory; HDF5 files are read in parts") from None
    except Exception as error:
        # Where a library meets damage decides which of a dozen exceptions it raises.
        reason = getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
        exact = f"cannot read {path}: {shown(reason, 300)}"
        if isinstance(error, OSError | EOFError | KeyError) and not isinstance(error, gzip.BadGzipFile):
            raise InputError(exact) from error
        # Other messages may repeat what the file holds, and a notebook would show the cause.
        raise DataError(f"cannot read {path}, which is damaged or another kind of file", exact) from None


def check_unchanged(path: Path, state: Identity | None) -> None:
    """Raise InputError if a file is no longer what it was when it had this identity."""
    if identity(path) != state:
        raise InputError(f"{path} has changed while it was in use; put it back and repeat the command")


def row_text(number: int, has_header: bool) -> str:
    """Row of a file by its number from 0, as a spreadsheet counts: from 1, with the header."""
    return f"row {number + 1 + has_header} (the {'header' if has_header else 'first'} is row 1)"


def listed(names: Collection[object]) -> str:
    """First of some names, as a message lists them."""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(shown(name) or "'' (without a name)" for name in list(names)[:MOST_NAMES]) + more


def shown(value: object, most: int = 60) -> str:
    """Content of a file as a message repeats it: short, and without control characters."""
    text = str(value)
    short = text if len(text) <= most else f"{text[:most]}..."
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in short)
