"""File formats: their suffixes, and the arrays, columns or samples that a file holds."""

from __future__ import annotations

import gzip
import math
import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, TextIO, TypeAlias

from mu2mpi.core.errors import InputError
from mu2mpi.core.files import check_readable
from mu2mpi.core.lazy import NDArray, np
from mu2mpi.core.memory import check_room
from mu2mpi.core.registry import find, names
from mu2mpi.data.column_values import Cells
from mu2mpi.data.redaction import listed, reading, shown

# Names under which features, labels and owners are looked for, unless the user gives others
USUAL = {
    "features": ("features", "X", "x", "images", "data"),
    "labels": ("labels", "label", "y", "target", "class"),
}
OWNERS = "machine"
MOST_FEATURES = 10_000_000
# A packed file that says it unpacks to more bytes than this, and more times its size, is refused
SURELY_LARGE, MOST_FOLD = 16 << 20, 250

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


class File(ABC):
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

    @abstractmethod
    def arrays(self, wanted: Mapping[str, Kind]) -> dict[str, Any]:
        """Return arrays by name, with a shape and a dtype, that give ascending rows by ``array[rows]``."""

    def table(self, features: str | None, labels: str | None) -> Table:
        """Return samples of which features and labels, and perhaps owners, are an array each.

        Of columns, features are all but labels and owners, or those named with commas.
        """
        given: Sequence[str | None] = [features]
        if self.is_table:
            given = [] if features is None else [name.strip() for name in features.split(",")]
        wanted = [find_name(self.path, self.names, name, "features") for name in given]
        others = [find_name(self.path, self.names, labels, "labels"), *({OWNERS} & {*self.names})]
        if self.is_table and features is None:
            wanted = [name for name in self.names if name not in others]
        name, count = Counter([*wanted, *set(others)]).most_common(1)[0]
        if count > 1:
            raise InputError(f"{self.path}: {shown(name)} is named twice; name others with --features")
        kinds: dict[str, Kind] = {**dict.fromkeys(wanted, "numbers"), **dict.fromkeys(others, "names")}
        arrays = self.arrays(kinds)
        columns = [arrays[name] for name in wanted]
        if not self.is_table:
            return Table(self.path, *columns, *(arrays[name] for name in dict.fromkeys(others)))
        matrix = np.column_stack([np.empty((len(arrays[others[0]]), 0)), *columns])
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
        table, array = self._numbered, self._sole
        if table is not None:

            def read_numbered(names: Sequence[str], rows: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
                features: Any = table.features(rows) if any(map(str.isdecimal, names)) else None
                return {
                    name: features[:, int(name) - self.first]
                    if name.isdecimal()
                    else table.cells("owner" if name == OWNERS else "label", rows).values
                    for name in names
                }

            return Columns(self.path, table.samples, read_numbered)
        for name in wanted:
            kind = array.dtype[name]
            if kind.subdtype or kind.kind not in "biufSUO":
                raise InputError(f"{self.path}: field {shown(name)} is of type {kind}; declare it as ignored")

        def read(names: Sequence[str], rows: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
            block = array[rows].reshape(len(rows))
            return {name: block[name] for name in names}

        return Columns(self.path, array.shape[0], read)


class TextFile(File):
    """A file of text, perhaps packed by gzip, that is read whole."""

    def __init__(self, path: Path, dimension: int = 0) -> None:
        super().__init__(path)
        self.is_packed, size = path.suffix.lower() == ".gz", os.path.getsize(path)
        if self.is_packed and size > 4:
            with open(path, "rb") as file:
                file.seek(-4, os.SEEK_END)
                unpacked = int.from_bytes(file.read(4), "little")
            if unpacked > max(SURELY_LARGE, MOST_FOLD * size):
                raise InputError(f"{path} unpacks to over {MOST_FOLD} times its size; unpack it first")
            size = unpacked
        check_room(path, size)

    @contextmanager
    def text(self) -> Iterator[TextIO]:
        """Open the file as text in UTF-8, with the ends of its lines as they are; errors are InputErrors."""
        opened: Any = gzip.open if self.is_packed else open
        with reading(self.path), opened(self.path, "rt", encoding="utf-8-sig", newline="") as lines:
            yield lines


def find_name(path: Path, there: Collection[str], given: str | None, option: str) -> str:
    """Name of an array or column: the one that is given, or the first usual one that is there."""
    for name in USUAL[option] if given is None else (given,):
        if name in there:
            return name
    wanted = f"none of {', '.join(USUAL[option])}" if given is None else f"no {shown(given)}"
    holds = listed(there) or "nothing"
    raise InputError(f"{path} has {wanted}; name what it has with --{option}; it holds {holds}")


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
            file = file_format(path, dimension)
            if len(set(file.names)) < len(file.names):
                raise InputError(f"{path}: two columns have the same name")
            return file
    raise InputError(f"{path} is no file of samples by its suffix; it should be {file_form()}")
