"""From the columns of a table to features and labels, as a schema declares them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.data.cells import ABSENT, UNKNOWN, Cells
from mu2mpi.data.formats.table import Columns, Kind, Role, Table
from mu2mpi.data.schema import Column, Schema

Flaws = dict[str, NDArray[np.int64]]
"""Numbers of values that are missing, and outside what is declared, by column."""

WORDS = {
    form(word): k
    for k, some in enumerate(("false f no n 0", "true t yes y 1"))
    for word in some.split()
    for form in (str, str.upper, str.title)
}
"""What usual words of a boolean column mean, in small or capital letters."""

FEATURE_TYPE = np.dtype(np.float32)
"""It holds every feature closely enough: what is in [-1, 1] stays there."""


class Encoded(Table):
    """A table as a schema declares it: features in [-1, 1]; flaws are counted as rows are read."""

    def __init__(self, columns: Columns, schema: Schema, strict: bool, flaws: Flaws) -> None:
        self.path, self.samples, self._named, self._schema = columns.path, columns.samples, columns, schema
        self._strict, self._flaws, self.feature_type = strict, flaws, FEATURE_TYPE
        self.dimension, self.has_owners = len(schema.feature_names), schema.owner is not None
        self.has_header, self.feature_names = columns.has_header, schema.feature_names

    def features(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Features of some rows, ascending: shape (n, dimension)."""
        found = np.empty((len(rows), self.dimension), FEATURE_TYPE)
        start, declared = 0, self._schema.features
        for name, cells in self._named.cells([*declared], rows).items():
            width = len(declared[name].feature_names(name))
            encode(declared[name], cells, found[:, start : start + width], self._strict, self._flaws)
            start += width
        return found

    def cells(self, role: Role, rows: NDArray[np.int64]) -> Cells:
        """Labels or owners of some rows, ascending, as the file holds them."""
        name = str(self._schema.owner) if role == "owner" else self._schema.label[0]
        return self._named.cells([name], rows)[name]


def kinds(schema: Schema) -> dict[str, Kind]:
    """How each column is read; those that are ignored are not among these."""
    found: dict[str, Kind] = {}
    for name, column in schema.columns.items():
        if column.range is not None:
            found[name] = "numbers"
        elif column.type != "ignored":
            found[name] = "names" if column.type == "owner" else "texts"
    return found


def encode(column: Column, cells: Cells, into: NDArray[np.floating], strict: bool, flaws: Flaws) -> None:
    """Write features of a column, or labels that are numbers; count or refuse what is not declared."""
    if column.range is not None:
        values, (low, high) = cells.numbers(), column.range
        missing, outside = np.isnan(values), (values < low) | (values > high)
        middle, half = low / 2 + high / 2, high / 2 - low / 2
        inside = np.clip((np.clip(values, low, high) - middle) / half, -1, 1)
        into[:, 0] = np.where(missing, 0, inside)
    else:
        if column.type == "boolean" and column.true is None:
            codes = cells.codes(WORDS, whole=True)
        else:
            codes = _declared(column.categories or (column.false, column.true), cells)
        missing, outside = codes == ABSENT, codes == UNKNOWN
        if column.type == "categorical":
            into[:] = codes[:, np.newaxis] == np.arange(into.shape[1])
        else:
            points = np.linspace(-1, 1, len(column.categories or (False, True)))
            into[:, 0] = np.where(codes < 0, 0, points[np.maximum(codes, 0)])
    flaws[cells.column] = flaws.get(cells.column, 0) + np.array([missing.sum(), outside.sum()])
    if strict:
        remedy = "correct it, widen what is declared, or leave out --strict"
        cells.refuse(missing, "a value that is missing", remedy)
        cells.refuse(outside, "a value outside what is declared", remedy)


def encoded_labels(label: Column, cells: Cells, strict: bool, flaws: Flaws) -> NDArray[Any]:
    """Labels as classes, or as numbers of [-1, 1]; DataError if one is missing, or of no class."""
    if label.range is None:
        codes = _declared(label.classes or (), cells)
        cells.refuse(codes == ABSENT, "a label that is missing", "remove the sample")
        cells.refuse(codes == UNKNOWN, "a label that is no class declared", "declare it, or correct it")
        return codes.astype(np.int32)
    cells.refuse(np.isnan(cells.numbers()), "a label that is missing", "remove the sample")
    numbers = np.empty((len(cells.rows), 1))
    encode(label, cells, numbers, strict, flaws)
    return numbers[:, 0]


def _declared(values: Sequence[str | int | None], cells: Cells) -> NDArray[np.int64]:
    whole = all(isinstance(value, int) for value in values)
    return cells.codes({str(value): k for k, value in enumerate(values)}, whole)
