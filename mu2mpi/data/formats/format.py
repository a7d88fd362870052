"""Base classes of data file formats, and readers of their arrays, columns and sample tables."""

from __future__ import annotations

import gzip
import math
import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal, TextIO

from mu2mpi.core.arrays import IntArray
from mu2mpi.core.errors import InputError
from mu2mpi.core.files import check_readable
from mu2mpi.core.lazy import NDArray, np
from mu2mpi.core.memory import check_fits_in_memory
from mu2mpi.core.registry import known_names, lookup
from mu2mpi.data.column_values import ColumnValues, number_notation, parse_number
from mu2mpi.data.redaction import NOT_UTF8, as_input_errors, format_names, safe_text, to_nfc

# Default names of the array or columns of features and labels, by option, in order of preference
DEFAULT_ARRAY_NAMES = {
    "features": ("features", "X", "x", "images", "data"),
    "labels": ("labels", "label", "y", "target", "class"),
}
OWNER_COLUMN = "machine"  # name of the array or column of owners
MEMORY = "memory"  # name in settings of data, a test set or a schema that a Python program passes
MAX_FEATURES = 10_000_000
GZIP_SIZE_BYTES = 4  # at the end of a gzip file

ColumnRole = Literal["label", "owner"]
# How values are read from text: as float64, unconverted, or as int64 if all are integers and else as text
ValueType = Literal["numbers", "texts", "names"]


class Table:
    """Samples of a data file: a feature matrix (possibly sparse), labels, and optionally owners."""

    feature_names: tuple[str, ...] | None = None
    has_header = False

    def __init__(self, path: Path, features: Any, labels: Any, owners: Any = None) -> None:
        self.path, self._features, self._columns = path, features, {"label": labels, "owner": owners}
        self.has_owners, shape = owners is not None, tuple(features.shape)
        if len(shape) < 2:
            raise InputError(f"{path}: features must have a row for each sample, got the shape {shape}")
        for role, column in self._columns.items() if owners is not None else [("label", labels)]:
            if len(column.shape) == 0 or math.prod(column.shape[1:]) != 1:
                raise InputError(f"{path}: {role}s must be one per sample, got the shape {column.shape}")
            if column.shape[0] != shape[0]:
                raise InputError(f"{path} holds {shape[0]} rows of features but {column.shape[0]} {role}s")
        self.samples, self.dimension = shape[0], math.prod(shape[1:])
        if self.samples == 0:
            raise InputError(f"{path} is empty: it has no rows")
        if self.dimension == 0:
            raise InputError(f"{path} has no features, but only labels and owners. Add columns of features.")
        if self.dimension > MAX_FEATURES:
            raise InputError(f"{path} must have at most {MAX_FEATURES} features, got {self.dimension}")
        if features.dtype.kind not in "biuf":
            raise InputError(f"{path}: features must be real numbers, got the type {features.dtype}")
        dtypes = (dtype for dtype in (np.uint8, np.float32) if np.can_cast(features.dtype, dtype))
        self.feature_dtype: np.dtype[Any] = np.dtype(next(dtypes, np.float64))

    def features(self, rows: IntArray) -> NDArray[np.generic]:
        """Features of given samples (ascending rows): shape (len(rows), dimension), dtype `feature_dtype`."""
        block = self._features[rows]
        dense: NDArray[np.generic] = block if isinstance(block, np.ndarray) else block.toarray()
        return np.ascontiguousarray(dense.reshape(len(rows), self.dimension), self.feature_dtype)

    def column(self, role: ColumnRole, rows: IntArray) -> ColumnValues:
        """Unconverted labels or owners of given samples (ascending rows)."""
        values = self._columns[role][rows].reshape(len(rows))
        if values.dtype.kind not in "biufSUO":
            raise InputError(f"{self.path}: each {role} must be a number or text, got {values.dtype}")
        return ColumnValues(self.path, f"of {role}s", rows, values, self.has_header)


class DataFile(ABC):
    """Open data file of named arrays; base class of the file formats."""

    component_kind: ClassVar[str] = "formats"
    name: ClassVar[str]  # of the format
    suffixes: ClassVar[tuple[str, ...]]  # of file names, in lower case
    array_names: list[str]
    has_header = False  # whether the first row holds column names
    has_column_names = True  # whether columns have names, and not only numbers
    is_table = False  # whether each array is one column
    decimal = "."  # decimal mark of numbers in text

    def __init__(self, path: Path, dimension: int = 0) -> None:
        self.path = path

    @abstractmethod
    def arrays(self, wanted_arrays: Mapping[str, ValueType]) -> dict[str, Any]:
        """Arrays by name, indexed by ascending rows; `wanted_arrays` maps names to text conversions."""

    def table(self, features: str | None, labels: str | None) -> Table:
        """Read a data file without a schema, from the arrays or columns that --features and --labels name."""
        options: Sequence[str | None] = [features]
        if self.is_table:
            options = [] if features is None else [name.strip() for name in features.split(",")]
        inputs = [find_array_name(self.path, self.array_names, name, "features") for name in options]
        label_name = find_array_name(self.path, self.array_names, labels, "labels")
        targets = [label_name, *({OWNER_COLUMN} & {*self.array_names})]
        if self.is_table and features is None:
            inputs = [name for name in self.array_names if name not in targets]
            if "" in inputs:
                column = f"column {self.array_names.index('') + 1} has no name"
                fix = "Name or remove it (a separator at the end of lines makes one), or give --features"
                raise InputError(f"{self.path}: {column}. {fix}.")
        name, count = Counter([*inputs, *set(targets)]).most_common(1)[0]
        if count > 1:
            raise InputError(f"{self.path}: {safe_text(name)} is named twice; name others with --features")
        kinds: dict[str, ValueType] = {**dict.fromkeys(inputs, "numbers"), **dict.fromkeys(targets, "names")}
        arrays = self.arrays(kinds)
        columns = [arrays[name] for name in inputs]
        if not self.is_table:
            return Table(self.path, *columns, *(arrays[name] for name in dict.fromkeys(targets)))
        matrix = np.column_stack([np.empty((len(arrays[targets[0]]), 0)), *columns])
        table = Table(self.path, matrix, *(arrays[name] for name in targets))
        table.has_header = self.has_header
        table.feature_names = tuple(map(to_nfc, inputs)) if self.has_column_names else None
        return table

    @property
    def has_feature_matrix(self) -> bool:
        """Whether features are a matrix, whose columns have no names."""
        names = [name for name in DEFAULT_ARRAY_NAMES["features"] if name in self.array_names]
        arrays = {} if self.is_table else self.arrays(dict.fromkeys(names[:1], "numbers"))
        return any(len(array.shape) > 1 for array in arrays.values())

    @property
    def column_names(self) -> list[str]:
        """Names of all columns of the file, as a schema declares them."""
        return [*map(to_nfc, self.array_names)]

    def column_values(self, name: str, rows: IntArray, values: NDArray[Any]) -> ColumnValues:
        """Unconverted values of a named column in given rows, with the file's header and decimal mark."""
        column = values.reshape(len(rows))
        return ColumnValues(self.path, name, rows, column, self.has_header, self.decimal)

    def columns(self, wanted_columns: Mapping[str, ValueType]) -> dict[str, Any]:
        """Columns by name, indexed by ascending rows; `wanted_columns` maps names to text conversions."""
        stored_names = {to_nfc(name): name for name in self.array_names}
        arrays = self.arrays({stored_names[name]: kind for name, kind in wanted_columns.items()})
        for name, array in arrays.items():
            if (len(array.shape) != 1 and array.shape[1:] != (1,)) or array.dtype.kind not in "biufSUO":
                layout = f"the shape {array.shape} and the type {array.dtype}"
                fault = f"{safe_text(name)} must have one axis of numbers or text, got {layout}"
                raise InputError(f"{self.path}: {fault}. Declare it as ignored.")
        lengths = {array.shape[0] for array in arrays.values()}
        if len(lengths) != 1:
            raise InputError(f"{self.path} has columns of different lengths")
        if lengths == {0}:
            raise InputError(f"{self.path} is empty: it has no rows")
        return {name: arrays[stored_names[name]] for name in wanted_columns}


class TextFile(DataFile):
    """Base class of text formats, possibly gzip-compressed, whose files are read into memory."""

    def __init__(self, path: Path, dimension: int = 0) -> None:
        super().__init__(path)
        self._is_gzipped, size = path.suffix.lower() == ".gz", os.path.getsize(path)
        if self._is_gzipped and size >= GZIP_SIZE_BYTES:
            with path.open("rb") as file:  # The last bytes state the unpacked size.
                file.seek(-GZIP_SIZE_BYTES, os.SEEK_END)
                size = max(size, int.from_bytes(file.read(), "little"))
        check_fits_in_memory(path, size)

    @contextmanager
    def text(self) -> Iterator[TextIO]:
        """Context manager: the data file as UTF-8 text with unchanged line ends; errors become InputError."""
        opener: Any = gzip.open if self._is_gzipped else open
        with as_input_errors(self.path), opener(self.path, "rt", encoding="utf-8-sig", newline="") as file:
            start = file.buffer.peek(256)
            if 3 * start.count(0) > len(start):  # plain letters in UTF-16 are valid UTF-8, too
                raise InputError(f"{self.path} {NOT_UTF8}")
            yield file


def find_array_name(path: Path, array_names: Collection[str], name: str | None, option: str) -> str:
    """Name of the array that --features or --labels selects; by default one of DEFAULT_ARRAY_NAMES."""
    names = {to_nfc(array_name): array_name for array_name in array_names}
    for candidate in DEFAULT_ARRAY_NAMES[option] if name is None else (to_nfc(name),):
        if candidate in names:
            return names[candidate]
    lack = f"none of {', '.join(DEFAULT_ARRAY_NAMES[option])}" if name is None else f"no {safe_text(name)}"
    found = describe_columns([*array_names]) or "nothing"
    fix = "target=NAME" if path.name.endswith(MEMORY) else f"--{option} NAME"
    raise InputError(f"{path} has {lack}, but {found}. Give {fix}.")


def describe_columns(names: Sequence[str]) -> str:
    """Names of columns for messages; without names if some are numbers, as in a row that is no header."""
    is_numbered = [*names] == [*map(str, range(len(names)))]
    may_be_row = not is_numbered and any(parse_number(n) is not None or number_notation([n]) for n in names)
    return f"{len(names)} names that may be values of a row" if may_be_row else format_names(names)


def check_distinct_names(path: Path, names: Sequence[str]) -> None:
    """Raise InputError if two columns of a file, named in its order, have the same name."""
    [name, count], *_ = Counter(names).most_common(1) or [("", 1)]
    if count > 1:
        places = " and ".join(str(k) for k, other in enumerate(names, 1) if other == name)
        title = "the same name" if name else "no name"
        raise InputError(f"{path}: columns {places} have {title}, of {describe_columns(names)}. Rename them.")


def formats_by_suffix() -> dict[str, type[DataFile]]:
    """Return the registered file formats, by suffix of file names such as .csv."""
    formats = (lookup("formats", name) for name in known_names("formats"))
    return {suffix: file_format for file_format in formats for suffix in file_format.suffixes}


def is_data_file(name: str) -> bool:
    """Whether a file name has the suffix of a registered format, or stands for data in memory."""
    return name == MEMORY or name.lower().endswith(tuple(formats_by_suffix()))


def describe_suffixes() -> str:
    """Phrase for messages: "a file whose name ends in" the suffixes of all registered formats."""
    return f"a file whose name ends in {', '.join(formats_by_suffix())}"


def open_data_file(path: Path, dimension: int = 0) -> DataFile:
    """Open a data file in the format of its suffix; a sparse file has at least `dimension` features."""
    check_readable(path)
    name = path.name.lower()
    for suffix, file_format in formats_by_suffix().items():
        if name.endswith(suffix):
            file = file_format(path, dimension)
            check_distinct_names(path, [*map(to_nfc, file.array_names)])
            return file
    raise InputError(f"{path} has an unknown suffix; give {describe_suffixes()}")
