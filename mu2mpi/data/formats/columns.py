"""Named columns of a user's table, whatever its format."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mu2mpi.data.formats.table import OWNERS, Table, shown
from mu2mpi.errors import InputError

Kind = Literal["numbers", "texts", "names"]
"""How a column is read from text: as numbers, as it stands, or as whole numbers where all are such."""

LABEL = "label"
"""The column of labels in a file that has features without names."""


class Columns(ABC):
    """Columns of a file, of which some rows, ascending, can be read."""

    has_header = False

    def __init__(self, path: Path, samples: int) -> None:
        self.path, self.samples = path, samples
        if samples == 0:
            raise InputError(f"{path} is empty: it has no rows")

    @abstractmethod
    def read(self, names: Sequence[str], rows: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Return some rows of columns: numbers, or text as objects; None may stand for what is missing."""


class Apart(Columns):
    """Columns that are an array each, or what gives some rows of it."""

    def __init__(self, path: Path, columns: Mapping[str, Any]) -> None:
        self._columns = columns
        lengths = {column.shape[0] if column.shape else 0 for column in columns.values()}
        for name, column in columns.items():
            if len(column.shape) != 1 and (len(column.shape) != 2 or column.shape[1] != 1):
                raise InputError(
                    f"{path}: {shown(name)} has the shape {column.shape}, and columns have one axis"
                )
        if len(lengths) != 1:
            raise InputError(f"{path} has columns of different lengths")
        super().__init__(path, lengths.pop())

    def read(self, names: Sequence[str], rows: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Return some rows of each."""
        return {name: self._columns[name][rows].reshape(len(rows)) for name in names}


class Together(Columns):
    """Columns that are the fields of one structured array, or of what gives some rows of it."""

    def __init__(self, path: Path, table: Any, wanted: Mapping[str, Kind]) -> None:
        self._table = table
        for name in wanted:
            kind = table.dtype[name]
            if kind.subdtype or kind.kind not in "biufSUO":
                raise InputError(
                    f"{path}: the field {shown(name)} has the type {kind}; a column has one number or text a "
                    "row; declare it as ignored"
                )
        super().__init__(path, table.shape[0])

    def read(self, names: Sequence[str], rows: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Return some rows of each."""
        block = self._table[rows].reshape(len(rows))
        return {name: block[name] for name in names}


class Numbered(Columns):
    """Features that are called by their numbers, as they have no names, with labels and perhaps owners."""

    def __init__(self, table: Table, first: int) -> None:
        self._table, self._first = table, first
        super().__init__(table.path, table.samples)

    @property
    def names(self) -> list[str]:
        """The names of all columns."""
        numbers = range(self._first, self._first + self._table.dimension)
        return [*map(str, numbers), LABEL, *([OWNERS] if self._table.has_owners else [])]

    def read(self, names: Sequence[str], rows: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Return some rows of each."""
        numbered = set(names) - {LABEL, OWNERS}
        block = self._table.features(rows) if numbered else np.empty((len(rows), 0))
        found = {name: block[:, int(name) - self._first] for name in numbered}
        others = {LABEL: "label", OWNERS: "owner"}.items()
        return found | {name: self._table.column(role, rows) for name, role in others if name in names}  # type: ignore[arg-type]
