"""What a user's file of samples offers, whatever its format, and what is checked of every one."""

import csv
import gzip
import math
import re
import zipfile
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mu2mpi.data.telling import DataError
from mu2mpi.errors import InputError

USUAL = {
    "features": ("features", "X", "x", "images", "data"),
    "labels": ("labels", "label", "y", "target", "class"),
}
OWNERS = "machine"
"""Names under which features, labels and owners are looked for, unless the user gives others."""

MOST_FEATURES = 10_000_000
# How many characters and names of what a file holds a message repeats, and characters of a library's message.
MOST_SHOWN, MOST_NAMES, MOST_SAID = 60, 20, 300

STRUCTURAL = OSError, EOFError, KeyError, zipfile.BadZipFile
"""What libraries raise where a file is not built as it should be; others may repeat what the file holds."""

SAID = {
    UnicodeDecodeError: "text that is not in UTF-8",
    csv.Error: "quotes that do not match, or a very long value",
}

Column = Literal["label", "owner"]


class Table:
    """Samples as a file holds them: rows of features, a label, perhaps an owner.

    Each column is an array, or what gives those rows of the file, ascending, that are asked for; features may
    be a sparse matrix, whose rows are made dense on demand. By their names, if they have any, features are
    found again in another file.
    """

    feature_names: tuple[str, ...] | None = None
    has_header = False

    def __init__(self, path: Path, features: Any, labels: Any, owners: Any = None) -> None:
        self.path, self._features, self._columns = path, features, {"label": labels, "owner": owners}
        self.samples, self.dimension = checked_size(path, features.shape, labels.shape)
        self.has_owners = owners is not None
        if owners is not None:
            checked_size(path, features.shape, owners.shape, "owners")
        self.feature_type = kernel_type(path, features.dtype)

    def features(self, rows: NDArray[np.int64]) -> NDArray[np.generic]:
        """Return the features of some rows, ascending: shape (n, dimension), of the feature type."""
        chosen = self._features[rows]
        dense: NDArray[np.generic] = chosen if isinstance(chosen, np.ndarray) else chosen.toarray()
        return np.ascontiguousarray(dense.reshape(len(rows), self.dimension), self.feature_type)

    def column(self, what: Column, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Return the labels or owners, of any kind, of some rows, ascending."""
        values: NDArray[Any] = self._columns[what][rows]
        return values.reshape(len(rows))


def kernel_type(path: Path, stored: np.dtype[np.generic]) -> np.dtype[np.generic]:
    """Return uint8, float32 or float64, whichever holds all features of a type exactly, if one does."""
    if stored.kind not in "biuf":
        raise InputError(f"{path}: features must be real numbers, and these are of the type {stored}")
    if stored.kind == "b" or stored == np.uint8:
        return np.dtype(np.uint8)
    return np.dtype(np.float32 if np.can_cast(stored, np.float32) else np.float64)


def checked_size(
    path: Path, features: Sequence[int], column: Sequence[int], what: str = "labels"
) -> tuple[int, int]:
    """Return the numbers of samples and features, by the shapes of features and of a column beside them.

    Features may have several axes, such as those of images; they are taken as one.
    """
    if len(features) < 2:
        raise InputError(f"{path}: features need a row for each sample, and have the shape {tuple(features)}")
    if len(column) == 0 or math.prod(column[1:]) != 1:
        raise InputError(f"{path}: {what} must be one a sample, and have the shape {tuple(column)}")
    if column[0] != features[0]:
        raise InputError(f"{path} holds {features[0]} rows of features but {column[0]} {what}")
    dimension = math.prod(features[1:])
    if features[0] == 0 or dimension == 0:
        raise InputError(f"{path} is empty: its features have the shape {tuple(features)}")
    if dimension > MOST_FEATURES:
        raise InputError(f"{path} has {dimension} features a sample, and {MOST_FEATURES} are the most")
    return features[0], dimension


def find_name(path: Path, there: Collection[str], given: str | None, option: str) -> str:
    """Return the name of an array or column: the one that is given, or the first usual one that is there."""
    for name in USUAL[option] if given is None else (given,):
        if name in there:
            return name
    holds = ", ".join(map(shown, list(there)[:MOST_NAMES])) or "nothing"
    holds += f" and {len(there) - MOST_NAMES} more" if len(there) > MOST_NAMES else ""
    wanted = f"none of {', '.join(USUAL[option])}" if given is None else f"no {shown(given)}"
    raise InputError(f"{path} has {wanted}; name what it has with --{option}; it holds {holds}")


def check_apart(path: Path, features: Sequence[Any], others: Collection[Any]) -> None:
    """Raise InputError if features are the same twice, or are what holds labels or owners."""
    what, count = Counter([*features, *set(others)]).most_common(1)[0]
    if count > 1:
        name = shown(without_owner(getattr(what, "name", what)))
        raise InputError(
            f"{path}: {name} is named as features twice, or holds labels or owners too; name others with "
            "--features and --labels"
        )


def row_text(number: int, has_header: bool) -> str:
    """Say which row of a file has this number, from 0, as a spreadsheet would: from 1, with the header."""
    return f"row {number + 1 + has_header} (the {'header' if has_header else 'first'} is row 1)"


def without_owner(name: str) -> str:
    """Return the name of something in an HDF5 file without that of the owner whose group it is in."""
    return re.sub(rf"^/{OWNERS}/[^/]+", f"/{OWNERS}/...", name)


def shown(value: object, most: int = MOST_SHOWN) -> str:
    """Return what a file holds as a message repeats it: in short, and with nothing that a terminal obeys."""
    text = str(value)
    short = text if len(text) <= most else f"{text[:most]}..."
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in short)


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
        kind = next((said for of, said in SAID.items() if isinstance(error, of)), type(error).__name__)
        reason = getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
        exact = f"cannot read {path}: {shown(reason, MOST_SAID)}"
        if isinstance(error, STRUCTURAL) and not isinstance(error, gzip.BadGzipFile):
            raise InputError(exact) from error
        # Without a cause, which a notebook would show.
        raise DataError(
            f"cannot read {path}, which is damaged or another kind of file: {kind}", exact
        ) from None
