"""From the columns of a table to features and labels, as a schema declares them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.data.cells import ABSENT, UNKNOWN, Cells
from mu2mpi.data.formats.columns import Columns, Kind
from mu2mpi.data.formats.table import Column as Role, Table
from mu2mpi.data.schema import FALSE, TRUE, Column, Schema

FORMS = str, str.upper, str.title
"""Ways to write a word of a boolean column."""

FEATURE_TYPE = np.dtype(np.float32)
"""It holds every feature closely enough: what is in [-1, 1] stays there."""


class Declared:
    """Labels that a schema declares, which its table encodes."""

    def __init__(self, schema: Schema) -> None:
        self.names, self.classes, self.range = schema.class_names, schema.classes, schema.label[1].range

    def of(self, table: Any, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Return the label of each of some rows, ascending."""
        labels: NDArray[Any] = table.column("label", rows)
        return labels


class Numbers:
    """Numbers as labels, of a public range LOW:HIGH that becomes [-1, 1]; those beyond it are clamped."""

    names: tuple[str, ...] | None = None

    def __init__(self, text: str, strict: bool) -> None:
        low, high = map(float, text.split(":"))
        self._label, self._strict = Column(type="label", low=low, high=high), strict
        self.range, self.classes = self._label.range, self._label.count

    def of(self, table: Table, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Return the label of each of some rows, ascending, in [-1, 1]."""
        cells = Cells(table.path, "of labels", rows, table.column("label", rows), table.has_header)
        return encoded_labels(self._label, cells, self._strict)


class Encoded(Table):
    """A table as a schema declares it: features in [-1, 1], and labels that are classes or in [-1, 1]."""

    def __init__(self, columns: Columns, schema: Schema, strict: bool) -> None:
        self.path, self.samples, self._named = columns.path, columns.samples, columns
        self.has_header = columns.has_header
        self.schema, self._strict, self.feature_type = schema, strict, FEATURE_TYPE
        self.dimension, self.has_owners = len(schema.feature_names), schema.owner is not None

    def features(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Features of some rows, ascending: shape (n, dimension)."""
        found = np.empty((len(rows), self.dimension), FEATURE_TYPE)
        start = 0
        for name, column, cells in self._cells(self.schema.features, rows):
            width = len(column.feature_names(name))
            missing, outside = encode(column, cells, found[:, start : start + width])
            start += width
            if self._strict:
                remedy = "correct it, widen what the schema declares, or leave out --strict"
                cells.refuse(missing, "a value that is missing", remedy)
                cells.refuse(outside, "a value outside what the schema declares", remedy)
        return found

    def column(self, what: Role, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Owners of some rows, ascending, of any kind, or labels, encoded."""
        name = str(self.schema.owner) if what == "owner" else self.schema.label[0]
        values = self._named.read([name], rows)[name]
        cells = Cells(self.path, name, rows, values, self.has_header)
        if what == "label":
            return encoded_labels(self.schema.label[1], cells, self._strict)
        cells.refuse(cells.codes({}, whole=False) == ABSENT, "an owner that is missing", "remove the sample")
        return values

    def flaws(self, rows: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
        """Numbers of values that are missing, and outside what is declared, by column, in some rows."""
        counts = {}
        for name, column, cells in self._cells(self.schema.features, rows):
            scratch = np.empty((len(rows), len(column.feature_names(name))), FEATURE_TYPE)
            counts[name] = np.array([mask.sum() for mask in encode(column, cells, scratch)])
        target, label = self.schema.label
        for name, _, cells in self._cells({target: label} if label.range else {}, rows):
            counts[name] = np.array([0, outside_range(cells.numbers(), label).sum()])
        return counts

    def _cells(
        self, columns: Mapping[str, Column], rows: NDArray[np.int64]
    ) -> Iterator[tuple[str, Column, Cells]]:
        values = self._named.read(list(columns), rows)
        for name, column in columns.items():
            yield name, column, Cells(self.path, name, rows, values[name], self.has_header)


def kinds(schema: Schema) -> dict[str, Kind]:
    """How each column is read; those that are ignored are not among these."""
    found: dict[str, Kind] = {}
    for name, column in schema.columns.items():
        if column.range is not None:
            found[name] = "numbers"
        elif column.type != "ignored":
            found[name] = "names" if column.type == "owner" else "texts"
    return found


def encode(
    column: Column, cells: Cells, into: NDArray[np.float32]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Write the features of a column; return which values are missing, and which are not as declared."""
    if column.range is not None:
        values = cells.numbers()
        missing = np.isnan(values)
        into[:, 0] = np.where(missing, 0, _mapped(values, *column.range))
        return missing, outside_range(values, column)
    codes = _boolean(column, cells) if column.type == "boolean" else _declared(column.categories or (), cells)
    if column.type == "categorical":
        into[:] = codes[:, np.newaxis] == np.arange(into.shape[1])
    else:
        points = np.linspace(-1, 1, len(column.categories or (False, True)))
        into[:, 0] = np.where(codes < 0, 0, points[np.maximum(codes, 0)])
    return codes == ABSENT, codes == UNKNOWN


def encoded_labels(label: Column, cells: Cells, strict: bool) -> NDArray[Any]:
    """Labels as classes, or as numbers of [-1, 1]; DataError if one is missing, or of no class."""
    if label.range is None:
        codes = _declared(label.classes or (), cells)
        cells.refuse(codes == ABSENT, "a label that is missing", "remove the sample")
        cells.refuse(
            codes == UNKNOWN, "a label that is none of the classes declared", "declare it, or correct it"
        )
        return codes.astype(np.int32)
    values = cells.numbers()
    cells.refuse(np.isnan(values), "a label that is missing", "remove the sample")
    if strict:
        remedy = "widen the range, or leave out --strict"
        cells.refuse(outside_range(values, label), "a label outside its declared range", remedy)
    return _mapped(values, *label.range)


def outside_range(values: NDArray[np.float64], column: Column) -> NDArray[np.bool_]:
    """Whether each value is beyond the range of a column."""
    low, high = column.range or (-np.inf, np.inf)
    return (values < low) | (values > high)


def _mapped(values: NDArray[np.float64], low: float, high: float) -> NDArray[np.float64]:
    """Numbers of a range as those of [-1, 1]; what is beyond it is clamped."""
    middle, half = low / 2 + high / 2, high / 2 - low / 2
    inside: NDArray[np.float64] = (np.clip(values, low, high) - middle) / half
    return np.clip(inside, -1, 1)


def _declared(values: Sequence[str | int], cells: Cells) -> NDArray[np.int64]:
    whole = all(isinstance(value, int) for value in values)
    return cells.codes({str(value): k for k, value in enumerate(values)}, whole)


def _boolean(column: Column, cells: Cells) -> NDArray[np.int64]:
    if column.true is not None and column.false is not None:
        return _declared((column.false, column.true), cells)
    words = {form(word): k for k, some in enumerate((FALSE, TRUE)) for word in some for form in FORMS}
    return cells.codes(words, whole=True)
