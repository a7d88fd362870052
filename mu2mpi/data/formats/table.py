"""Tables of samples in a user's file, and what is checked of every one."""

import math
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mu2mpi.data.cells import Cells
from mu2mpi.data.telling import listed, shown
from mu2mpi.errors import InputError

USUAL = {
    "features": ("features", "X", "x", "images", "data"),
    "labels": ("labels", "label", "y", "target", "class"),
}
OWNERS = "machine"
"""Names under which features, labels and owners are looked for, unless the user gives others."""

MOST_FEATURES = 10_000_000

Role = Literal["label", "owner"]


class Table:
    """Samples as a file holds them: rows of features, a label, perhaps an owner.

    Each column is an array, or gives ascending rows by ``column[rows]``; features may be a sparse matrix.
    """

    feature_names: tuple[str, ...] | None = None
    has_header = False

    def __init__(self, path: Path, features: Any, labels: Any, owners: Any = None) -> None:
        self.path, self._features, self._columns = path, features, {"label": labels, "owner": owners}
        self.samples, self.dimension = _checked_size(path, features.shape, labels.shape, "labels")
        self.has_owners = owners is not None
        if owners is not None:
            _checked_size(path, features.shape, owners.shape, "owners")
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


def _checked_size(path: Path, features: Sequence[int], column: Sequence[int], what: str) -> tuple[int, int]:
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
