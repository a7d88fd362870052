"""File formats: their suffixes, and the arrays or columns that a file holds.

Format modules are imported to tell files by their suffixes: what is slow to import waits until one is opened.
"""

from __future__ import annotations

import gzip
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TextIO

from mu2mpi.core.errors import InputError
from mu2mpi.core.files import check_readable
from mu2mpi.core.lazy import NDArray, np
from mu2mpi.core.memory import check_room
from mu2mpi.core.registry import find, names
from mu2mpi.data.table import OWNERS, USUAL, Columns, Kind, Table, check_apart, columns_of, find_name
from mu2mpi.data.telling import reading, shown

# A packed file that says it unpacks to more bytes than this, and more times its size, is refused
SURELY_LARGE, MOST_FOLD = 16 << 20, 250


class File:
    """A file of arrays with names, one of which may hold features without names, or a field a column.

    A format derives from this class, sets `names`, and defines `arrays`; `dimension` is a number of features
    that a sparse file has at least.
    """

    kind: ClassVar[str] = "formats"
    name: ClassVar[str]  # of the format
    suffixes: ClassVar[tuple[str, ...]]  # of its files, in small letters
    names: list[str]
    has_header = False  # whether the first row of the file is not a sample
    has_names = True  # whether columns have names of their own, and not numbers
    is_table = False  # whether all arrays are columns
    first = 0  # number of the first feature without a name

    def __init__(self, path: Path, dimension: int = 0) -> None:
        self.path = path

    def arrays(self, wanted: Mapping[str, Kind]) -> dict[str, Any]:
        """Arrays by name, which have a shape and a dtype and give ascending rows by ``array[rows]``."""
        raise NotImplementedError

    def table(self, features: str | None, labels: str | None) -> Table:
        """Return samples of which features and labels, and perhaps owners, are an array each.

        Of columns, features are all but labels and owners, or those named with commas.
        """
        if self.is_table:
            return self._table_of_columns(features, labels)
        names = [
            find_name(self.path, self.names, name, option)
            for name, option in ((features, "features"), (labels, "labels"))
        ]
        names += [OWNERS] if OWNERS in self.names else []
        check_apart(self.path, names[:1], names[1:])
        return Table(self.path, *self.arrays(dict.fromkeys(names, "texts")).values())

    def _table_of_columns(self, features: str | None, labels: str | None) -> Table:
        others = [find_name(self.path, self.names, labels, "labels"), *({OWNERS} & {*self.names})]
        wanted = [name for name in self.names if name not in others]
        if features is not None:
            wanted = [
                find_name(self.path, self.names, name.strip(), "features") for name in features.split(",")
            ]
            check_apart(self.path, wanted, others)
        kinds: dict[str, Kind] = {**dict.fromkeys(wanted, "numbers"), **dict.fromkeys(others, "names")}
        arrays = self.arrays(kinds)
        matrix = np.column_stack([np.empty((len(arrays[others[0]]), 0)), *(arrays[name] for name in wanted)])
        found = Table(self.path, matrix, *(arrays[name] for name in others))
        found.has_header, found.feature_names = self.has_header, tuple(wanted) if self.has_names else None
        return found

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
        features: Any = table.features(rows) if any(map(str.isdecimal, names)) else None
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
        if self._numbered is not None:
            return Columns(self.path, self._numbered.samples, self._read_numbered)
        array = self._sole
        for name in wanted:
            kind = array.dtype[name]
            if kind.subdtype or kind.kind not in "biufSUO":
                raise InputError(
                    f"{self.path}: the field {shown(name)} has the type {kind}; a column has one number or "
                    "text a row; declare it as ignored"
                )

        def read(names: Sequence[str], rows: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
            block = array[rows].reshape(len(rows))
            return {name: block[name] for name in names}

        return Columns(self.path, array.shape[0], read)


class TextFile(File):
    """A file of text, perhaps packed by gzip, that is read whole."""

    def __init__(self, path: Path, dimension: int = 0) -> None:
        super().__init__(path)
        self.is_packed = path.suffix.lower() == ".gz"
        check_room(path, self._size())

    def _size(self) -> int:
        """Size of the text in bytes, of a packed file by its own account; InputError if that is too large."""
        size = os.path.getsize(self.path)
        if not self.is_packed or size <= 4:
            return size
        with open(self.path, "rb") as file:
            file.seek(-4, os.SEEK_END)
            unpacked = int.from_bytes(file.read(4), "little")
        if unpacked > max(SURELY_LARGE, MOST_FOLD * size):
            raise InputError(
                f"{self.path} unpacks to over {MOST_FOLD} times its size; if that is meant, unpack it first"
            )
        return unpacked

    @contextmanager
    def opened(self) -> Iterator[Any]:
        """Open the file as bytes, unpacked; whatever goes wrong is an InputError."""
        with reading(self.path), (gzip.open if self.is_packed else open)(self.path, "rb") as file:
            yield file

    @contextmanager
    def text(self) -> Iterator[TextIO]:
        """Open the file as text in UTF-8, with the ends of its lines as they are."""
        with self.opened() as file, io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as lines:
            yield lines


def formats_by_suffix() -> dict[str, type[File]]:
    """Return the file formats by the suffixes of their files."""
    formats: list[type[File]] = [find("formats", name) for name in names("formats")]
    return {suffix: one for one in formats for suffix in one.suffixes}


def is_file(data: str) -> bool:
    """Whether this is, by its suffix, a file of the user's."""
    return data.lower().endswith(tuple(formats_by_suffix()))


def file_form() -> str:
    """Return in words which names of files are accepted."""
    return f"a file whose name ends in {', '.join(formats_by_suffix())}"


def open_file(path: Path, dimension: int = 0) -> File:
    """Open a file by the format of its suffix; a sparse one has at least so many features."""
    check_readable(path)
    name = path.name.lower()
    for suffix, file_format in formats_by_suffix().items():
        if name.endswith(suffix):
            return file_format(path, dimension)
    raise InputError(f"{path} is no file of samples by its suffix; it should be {file_form()}")
