"""Tables of samples in files of any format, and what is checked of every one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

from mu2mpi.core.errors import InputError
from mu2mpi.core.lazy import NDArray, np
from mu2mpi.data.cells import Cells
from mu2mpi.data.telling import listed, shown

# Names under which features, labels and owners are looked for, unless the user gives others
USUAL = {
    "features": ("features", "X", "x", "images", "data"),
    "labels": ("labels", "label", "y", "target", "class"),
}
OWNERS = "machine"
MOST_FEATURES = 10_000_000

Role = Literal["label", "owner"]

# How a column is read from text: as numbers, as it stands, or as whole numbers where all are such
Kind = Literal["numbers", "texts", "names"]
# Returns some rows, ascending, of columns: numbers, or objects that are texts, or None if missing
Read: TypeAlias = "Callable[[Sequence[str], NDArray[np.int64]], dict[str, NDArray[Any]]]"


class Table:
    """Samples as a file holds them: rows of features, a label, perhaps an owner.

    Each column is an array, or gives ascending rows by ``column[rows]``; features may be a sparse matrix.
    """

    feature_names: tuple[str, ...] | None = None
    has_header = False

    def __init__(self, path: Path, features: Any, labels: Any, owners: Any = None) -> None:
        self.path, self._features, self._columns = path, features, {"label": labels, "owner": owners}
        self.has_owners, shape = owners is not None, tuple(features.shape)
        if len(shape) < 2:
            raise InputError(f"{path}: features need a row for each sample, and have the shape {shape}")
        for role, column in self._columns.items() if owners is not None else [("label", labels)]:
            if len(column.shape) == 0 or math.prod(column.shape[1:]) != 1:
                raise InputError(f"{path}: {role}s must be one a sample, and have the shape {column.shape}")
            if column.shape[0] != shape[0]:
                raise InputError(f"{path} holds {shape[0]} rows of features but {column.shape[0]} {role}s")
        self.samples, self.dimension = shape[0], math.prod(shape[1:])
        if 0 in shape:
            raise InputError(f"{path} is empty: its features have the shape {shape}")
        if self.dimension > MOST_FEATURES:
            raise InputError(f"{path} has {self.dimension} features a sample; {MOST_FEATURES} are the most")
        if features.dtype.kind not in "biuf":
            raise InputError(f"{path}: features should be real numbers, not of the type {features.dtype}")
        # The smallest of the kernels' types that holds all features exactly, if one does.
        fits = (kind for kind in (np.uint8, np.float32) if np.can_cast(features.dtype, kind))
        self.feature_type: np.dtype[Any] = np.dtype(next(fits, np.float64))

    def features(self, rows: NDArray[np.int64]) -> NDArray[np.generic]:
        """Return features of some rows, ascending: shape (n, dimension), of the feature type."""
        chosen = self._features[rows]
        dense: NDArray[np.generic] = chosen if isinstance(chosen, np.ndarray) else chosen.toarray()
        return np.ascontiguousarray(dense.reshape(len(rows), self.dimension), self.feature_type)

    def cells(self, role: Role, rows: NDArray[np.int64]) -> Cells:
        """Return labels or owners, of any kind, of some rows, ascending."""
        values = self._columns[role][rows].reshape(len(rows))
        if values.dtype.kind not in "biufSUO":
            raise InputError(f"{self.path}: each {role} must be a number or text, not {values.dtype}")
        return Cells(self.path, f"of {role}s", rows, values, self.has_header)


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


class Columns:
    """Columns of so many samples, of which `read` gives any."""

    def __init__(self, path: Path, samples: int, read: Read, has_header: bool = False) -> None:
        self.path, self.samples, self.read, self.has_header = path, samples, read, has_header
        if samples == 0:
            raise InputError(f"{path} is empty: it has no rows")

    def cells(self, names: Sequence[str], rows: NDArray[np.int64]) -> dict[str, Cells]:
        """Return the cells of some rows, ascending, of columns."""
        values = self.read(names, rows)
        return {name: Cells(self.path, name, rows, values[name], self.has_header) for name in names}


def columns_of(path: Path, arrays: Mapping[str, Any], has_header: bool = False) -> Columns:
    """Columns that are an array each, or what gives ascending rows by ``column[rows]``."""
    for name, array in arrays.items():
        if len(array.shape) != 1 and (len(array.shape) != 2 or array.shape[1] != 1):
            raise InputError(f"{path}: {shown(name)} has the shape {array.shape}, and columns have one axis")
    lengths = {array.shape[0] for array in arrays.values()}
    if len(lengths) != 1:
        raise InputError(f"{path} has columns of different lengths")

    def read(names: Sequence[str], rows: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        return {name: arrays[name][rows].reshape(len(rows)) for name in names}

    return Columns(path, lengths.pop(), read, has_header)
