"""Text in data files, and its redaction: messages about private data name neither rows nor values."""

import gzip
import unicodedata
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from mu2mpi.core.errors import InputError
from mu2mpi.core.files import FileIdentity, file_identity

MAX_LISTED_NAMES = 20  # names per message
# End of a message about a file of text in another encoding
NOT_UTF8 = "is not text in UTF-8. Save it as UTF-8, or add .gz to its name if it is compressed with gzip."


class DataError(InputError):
    """InputError on the content of a data file; only its `detailed_message` names rows and values."""

    def __init__(self, message: str, detailed_message: str) -> None:
        super().__init__(f"{message} (if the data are public, --data-is-public says where)")
        self.detailed_message = detailed_message


@contextmanager
def redacted_errors(data_is_public: bool) -> Iterator[None]:
    """Context manager: re-raise a DataError, with its detailed message only if the data are public."""
    try:
        yield
    except DataError as error:
        if not data_is_public:
            raise
        raise InputError(error.detailed_message) from error.__cause__


@contextmanager
def as_input_errors(path: Path) -> Iterator[None]:
    """Context manager: convert any exception raised while a data file is read to a redacted InputError."""
    try:
        yield
    except InputError:
        raise
    except MemoryError:
        raise InputError(f"{path} does not fit into memory; HDF5 files are read in parts") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} {NOT_UTF8}") from None
    except Exception as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
        detail = f"cannot read {path}: {safe_text(reason, 300)}"
        if isinstance(error, OSError | EOFError | KeyError) and not isinstance(error, gzip.BadGzipFile):
            raise InputError(detail) from error
        # Other messages may repeat content of the file, and a notebook would show the cause.
        raise DataError(f"cannot read {path}, which is damaged or another kind of file", detail) from None


def check_unchanged(path: Path, expected_identity: FileIdentity | None) -> None:
    """Raise InputError if a file has changed, by its identity (inode, size, modification time)."""
    if file_identity(path) != expected_identity:
        raise InputError(f"{path} has changed while it was in use; put it back and repeat the command")


def describe_row(row: int, has_header: bool) -> str:
    """Label of a 0-based row for messages, numbered from 1 including the header as in spreadsheets."""
    return f"row {row + 1 + has_header} (the {'header' if has_header else 'first'} is row 1)"


def format_names(names: Collection[object]) -> str:
    """Text with a comma-separated list of at most `MAX_LISTED_NAMES` names, made printable."""
    more = f" and {len(names) - MAX_LISTED_NAMES} more" if len(names) > MAX_LISTED_NAMES else ""
    return ", ".join(map(safe_text, list(names)[:MAX_LISTED_NAMES])) + more


def safe_text(value: object, max_length: int = 60) -> str:
    """Text of a value from a data file, truncated to `max_length` characters, control characters escaped."""
    text = str(value)
    truncated = text if len(text) <= max_length else f"{text[:max_length]}..."
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in truncated)


def to_nfc(text: str) -> str:
    """Text in Unicode's composed form, in which an accented letter is one character (NFC)."""
    return unicodedata.normalize("NFC", text)
