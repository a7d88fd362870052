"""Tables of samples in a user's file, and what is checked of every one."""

import gzip
import math
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
MOST_NAMES = 20
"""Names that a message lists."""

Column = Literal["label", "owner"]


class Table:
    """Samples as a file holds them: rows of features, a label, perhaps an owner.

    Each column is an array, or gives ascending rows by ``column[rows]``; features may be a sparse matrix.
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
        """Return features of some rows, ascending: shape (n, dimension), of the feature type."""
        chosen = self._features[rows]
        dense: NDArray[np.generic] = chosen if isinstance(chosen, np.ndarray) else chosen.toarray()
        return np.ascontiguousarray(dense.reshape(len(rows), self.dimension), self.feature_type)

    def column(self, what: Column, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Return labels or owners, of any kind, of some rows, ascending."""
        values: NDArray[Any] = self._columns[what][rows]
        return values.reshape(len(rows))


def kernel_type(path: Path, stored: np.dtype[np.generic]) -> np.dtype[np.generic]:
    """uint8, float32 or float64: the smallest that holds all features of a type exactly, if one does."""
    if stored.kind not in "biuf":
        raise InputError(f"{path}: features must be real numbers, and these are of the type {stored}")
    if stored.kind == "b" or stored == np.uint8:
        return np.dtype(np.uint8)
    return np.dtype(np.float32 if np.can_cast(stored, np.float32) else np.float64)


def checked_size(
    path: Path, features: Sequence[int], column: Sequence[int], what: str = "labels"
) -> tuple[int, int]:
    """Return the numbers of samples and features, by the shapes of features and of a column beside them."""
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
    """Name of an array or column: the one that is given, or the first usual one that is there."""
    for name in USUAL[option] if given is None else (given,):
        if name in there:
            return name
    wanted = f"none of {', '.join(USUAL[option])}" if given is None else f"no {shown(given)}"
    holds = listed(there) or "nothing"
    raise InputError(f"{path} has {wanted}; name what it has with --{option}; it holds {holds}")


def check_apart(path: Path, features: Sequence[str], others: Collection[str]) -> None:
    """Raise InputError if a feature is named twice, or is the label or the owner."""
    name, count = Counter([*features, *set(others)]).most_common(1)[0]
    if count > 1:
        raise InputError(
            f"{path}: {shown(name)} is named as features twice, or holds labels or owners too; name others "
            "with --features and --labels"
        )


def row_text(number: int, has_header: bool) -> str:
    """Row of a file by its number from 0, as a spreadsheet counts: from 1, with the header."""
    return f"row {number + 1 + has_header} (the {'header' if has_header else 'first'} is row 1)"


def listed(names: Collection[str]) -> str:
    """First of some names, as a message lists them."""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(shown(name) or "'' (without a name)" for name in list(names)[:MOST_NAMES]) + more


def shown(value: object, most: int = 60) -> str:
    """Content of a file as a message repeats it: short, and without control characters."""
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
        reason = getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
        exact = f"cannot read {path}: {shown(reason, 300)}"
        if isinstance(error, OSError | EOFError | KeyError) and not isinstance(error, gzip.BadGzipFile):
            raise InputError(exact) from error
        # Other messages may repeat what the file holds, and a notebook would show the cause.
        raise DataError(f"cannot read {path}, which is damaged or another kind of file", exact) from None
