"""Redaction of error messages about private data: only those about public data name rows and values."""

import gzip
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from mu2mpi.core.errors import InputError
from mu2mpi.core.files import FileIdentity, file_identity

MAX_LISTED_NAMES = 20  # names per message


class DataError(InputError):
    """Fault in the content of a data file; `detailed_message` names rows and values, the message does not."""

    def __init__(self, message: str, detailed_message: str) -> None:
        super().__init__(f"{message} (if the data are public, --data-is-public says where)")
        self.detailed_message = detailed_message


@contextmanager
def redacted_errors(is_public: bool) -> Iterator[None]:
    """Give a DataError its detailed message if the data are public; otherwise re-raise it redacted."""
    try:
        yield
    except DataError as error:
        if not is_public:
            raise
        raise InputError(error.detailed_message) from error.__cause__


@contextmanager
def read_errors(path: Path) -> Iterator[None]:
    """Convert any exception raised while the user's file `path` is read into a redacted InputError."""
    try:
        yield
    except InputError:
        raise
    except MemoryError:
        raise InputError(f"{path} does not fit into memory; HDF5 files are read in parts") from None
    except Exception as error:
        # Libraries raise a dozen different exceptions for damaged files, depending on where the damage is.
        reason = getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
        detail = f"cannot read {path}: {printable(reason, 300)}"
        if isinstance(error, OSError | EOFError | KeyError) and not isinstance(error, gzip.BadGzipFile):
            raise InputError(detail) from error
        # Other messages may repeat content of the file, and a notebook would show the cause.
        raise DataError(f"cannot read {path}, which is damaged or another kind of file", detail) from None


def check_unchanged(path: Path, expected: FileIdentity | None) -> None:
    """Raise InputError if the identity of a file (inode, size, times) differs from the expected one."""
    if file_identity(path) != expected:
        raise InputError(f"{path} has changed while it was in use; put it back and repeat the command")


def row_label(row: int, has_header: bool) -> str:
    """Label of a row (0-based) as a spreadsheet numbers it: from 1, the header included."""
    return f"row {row + 1 + has_header} (the {'header' if has_header else 'first'} is row 1)"


def format_names(names: Collection[object]) -> str:
    """Comma-separated list of at most MAX_LISTED_NAMES names, made printable."""
    more = f" and {len(names) - MAX_LISTED_NAMES} more" if len(names) > MAX_LISTED_NAMES else ""
    return ", ".join(printable(n) or "'' (without a name)" for n in list(names)[:MAX_LISTED_NAMES]) + more


def printable(value: object, max_length: int = 60) -> str:
    """Truncate a value from a file to `max_length` characters and escape its control characters."""
    text = str(value)
    short = text if len(text) <= max_length else f"{text[:max_length]}..."
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in short)
