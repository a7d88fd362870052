"""Files of named arrays or columns, whatever their format."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mu2mpi.data.cells import Cells
from mu2mpi.data.formats.table import OWNERS, USUAL, Table, check_apart, find_name
from mu2mpi.data.telling import shown
from mu2mpi.errors import InputError

Kind = Literal["numbers", "texts", "names"]
"""How a column is read from text: as numbers, as it stands, or as whole numbers where all are such."""

Read = Callable[[Sequence[str], NDArray[np.int64]], dict[str, NDArray[Any]]]
"""Returns some rows, ascending, of columns: numbers, or objects that are texts, or None if missing."""


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


def _fields(path: Path, array: Any, wanted: Mapping[str, Kind]) -> Columns:
    """Columns that are the fields of one structured array."""
    for name in wanted:
        kind = array.dtype[name]
        if kind.subdtype or kind.kind not in "biufSUO":
            raise InputError(
                f"{path}: the field {shown(name)} has the type {kind}; a column has one number or text a "
                "row; declare it as ignored"
            )

    def read(names: Sequence[str], rows: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        block = array[rows].reshape(len(rows))
        return {name: block[name] for name in names}

    return Columns(path, array.shape[0], read)


class File:
    """A file of arrays with names, one of which may hold features without names, or a field a column."""

    names: list[str]
    has_header = False
    is_table = False  # whether all arrays are columns
    first = 0  # number of the first feature without a name

    def __init__(self, path: Path, dimension: int = 0) -> None:
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
    def _numbered(self) -> Table | None:
        """The samples, if their features have no names: these are called by their numbers."""
        name = next((name for name in USUAL["features"] if name in self.names), None)
        is_matrix = name is not None and len(self.arrays({name: "numbers"})[name].shape) > 1
        return self.table(None, None) if is_matrix else None

    def _read_numbered(self, names: Sequence[str], rows: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        table: Any = self._numbered
        features = table.features(rows) if any(map(str.isdecimal, names)) else np.empty((0, 0))
        return {
            name: features[:, int(name) - self.first]
            if name.isdecimal()
            else table.cells("owner" if name == OWNERS else "label", rows).values
            for name in names
        }

    @property
    def column_names(self) -> list[str]:
        """Names of all columns."""
        if self.is_table or (self._numbered is None and self._sole is None):
            return self.names
        if self._numbered is None:
            return list(self._sole.dtype.names)
        numbers = range(self.first, self.first + self._numbered.dimension)
        return [*map(str, numbers), "label", *[OWNERS] * self._numbered.has_owners]

    def columns(self, wanted: Mapping[str, Kind]) -> Columns:
        """Columns by name, be it as of `column_names` or that of an array."""
        if set(wanted) <= set(self.names):
            return columns_of(self.path, self.arrays(wanted), self.has_header)
        if self._numbered is None:
            return _fields(self.path, self._sole, wanted)
        return Columns(self.path, self._numbered.samples, self._read_numbered)
