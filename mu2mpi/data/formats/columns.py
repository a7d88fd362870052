"""Files of named arrays or columns, whatever their format."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mu2mpi.data.formats.table import OWNERS, USUAL, Column, Table, check_apart, find_name, shown
from mu2mpi.errors import InputError

Kind = Literal["numbers", "texts", "names"]
"""How a column is read from text: as numbers, as it stands, or as whole numbers where all are such."""


class Columns:
    """Columns of one length, each an array or what gives ascending rows by ``column[rows]``."""

    def __init__(self, path: Path, columns: Mapping[str, Any], has_header: bool = False) -> None:
        self.path, self._columns, self.has_header = path, columns, has_header
        for name, column in columns.items():
            if len(column.shape) != 1 and (len(column.shape) != 2 or column.shape[1] != 1):
                raise InputError(
                    f"{path}: {shown(name)} has the shape {column.shape}, and columns have one axis"
                )
        self._set_samples({column.shape[0] for column in columns.values()})

    def _set_samples(self, lengths: set[int]) -> None:
        if len(lengths) != 1:
            raise InputError(f"{self.path} has columns of different lengths")
        self.samples = lengths.pop()
        if self.samples == 0:
            raise InputError(f"{self.path} is empty: it has no rows")

    def read(self, names: Sequence[str], rows: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Return some rows, ascending, of columns: numbers, or objects that are texts, or None if missing."""
        return {name: self._columns[name][rows].reshape(len(rows)) for name in names}


class Fields(Columns):
    """Columns that are the fields of one structured array."""

    def __init__(self, path: Path, array: Any, wanted: Mapping[str, Kind]) -> None:
        self.path, self._array = path, array
        for name in wanted:
            kind = array.dtype[name]
            if kind.subdtype or kind.kind not in "biufSUO":
                raise InputError(
                    f"{path}: the field {shown(name)} has the type {kind}; a column has one number or text a "
                    "row; declare it as ignored"
                )
        self.has_header = False
        self._set_samples({array.shape[0]})

    def read(self, names: Sequence[str], rows: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Return some rows, ascending, of columns."""
        block = self._array[rows].reshape(len(rows))
        return {name: block[name] for name in names}


class Numbered(Columns):
    """Features without names, which are called by their numbers, with ``label`` and perhaps ``machine``."""

    def __init__(self, table: Table, first: int) -> None:
        self.path, self._table, self._first, self.has_header = table.path, table, first, False
        numbers = range(first, first + table.dimension)
        self.names = [*map(str, numbers), "label", *([OWNERS] if table.has_owners else [])]
        self._set_samples({table.samples})

    def read(self, names: Sequence[str], rows: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Return some rows, ascending, of columns."""
        roles: dict[str, Column] = {"label": "label", OWNERS: "owner"}
        found = {name: self._table.column(roles[name], rows) for name in names if name in roles}
        if numbered := [name for name in names if name not in roles]:
            block = self._table.features(rows)
            found |= {name: block[:, int(name) - self._first] for name in numbered}
        return found


class File:
    """A file of arrays with names, one of which may hold features without names, or a field a column."""

    names: list[str]
    has_header = False
    is_table = False  # whether all arrays are columns
    first = 0  # number of the first feature without a name

    def __init__(self, path: Path) -> None:
        self.path = path

    def arrays(self, wanted: Mapping[str, Kind]) -> dict[str, Any]:
        """Arrays by name, which have a shape and a dtype and give ascending rows by ``array[rows]``."""
        raise NotImplementedError

    def table(self, features: str | None, labels: str | None) -> Table:
        """Return samples of which features and labels, and perhaps owners, are an array each."""
        names = [
            find_name(self.path, self.names, name, option)
            for name, option in ((features, "features"), (labels, "labels"))
        ]
        names += [OWNERS] if OWNERS in self.names else []
        check_apart(self.path, names[:1], names[1:])
        return Table(self.path, *self.arrays(dict.fromkeys(names, "texts")).values())

    @cached_property
    def _sole(self) -> Any:
        """The only array, if it has fields, and else None."""
        only = next(iter(self.arrays({self.names[0]: "texts"}).values())) if len(self.names) == 1 else None
        return only if only is not None and len(only.shape) == 1 and only.dtype.names else None

    @cached_property
    def _numbered(self) -> Numbered | None:
        """The columns of features without names, if there are such features."""
        for name in USUAL["features"]:
            if name in self.names and len(self.arrays({name: "numbers"})[name].shape) > 1:
                return Numbered(self.table(None, None), self.first)
        return None

    @property
    def column_names(self) -> list[str]:
        """Names of all columns."""
        if self.is_table or (self._numbered is None and self._sole is None):
            return self.names
        return list(self._sole.dtype.names) if self._numbered is None else self._numbered.names

    def columns(self, wanted: Mapping[str, Kind]) -> Columns:
        """Columns by name, be it as of `column_names` or that of an array."""
        if set(wanted) <= set(self.names):
            return Columns(self.path, self.arrays(wanted), self.has_header)
        return Fields(self.path, self._sole, wanted) if self._numbered is None else self._numbered
