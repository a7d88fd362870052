"""Labels and owners without a schema: classes that are found in a file, or numbers in a range."""

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.data.cells import MISSING, Cells
from mu2mpi.data.formats.table import Column, Table, reading, row_text, shown
from mu2mpi.data.source import COLUMN_AT_ONCE, row_blocks
from mu2mpi.data.telling import DataError
from mu2mpi.errors import InputError

# Beyond the second, there should be at least three samples of each class, on average.
MOST_CLASSES, SURELY_MANY = 1_000_000, 100

TENTHS = 10
"""Parts of the range of a number as label, which stand for classes where samples are dealt and counted."""

ONE = {"label": "a label", "owner": "an owner"}

UNFIT = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""Characters that no name has: a result cannot hold them, or a terminal obeys them."""


class FoundClasses:
    """The different labels of a training file in order: whole numbers, or text."""

    range: tuple[float, float] | None = None

    def __init__(self, training: Table, missing: frozenset[str]) -> None:
        self._training, self._missing = training.path, missing
        self._values = _find_classes(training, missing)
        self.names: tuple[str, ...] | None = tuple(str(value) for value in self._values)
        self.classes = len(self._values)

    def of(self, table: Table, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Return the class of each of some rows, ascending."""
        labels = plain(table, rows, "label", self._missing)
        if labels.dtype != self._values.dtype:
            raise InputError(f"the labels in {table.path} are not of the kind of those in {self._training}")
        place = np.minimum(np.searchsorted(self._values, labels), self.classes - 1)
        unknown = np.flatnonzero(self._values[place] != labels)
        if unknown.size:
            label, none = shown(labels[unknown[0]]), f"of which {self._training} has no sample"
            raise DataError(
                f"{table.path} has a label {none}",
                f"{table.path}: {row_text(rows[unknown[0]], table.has_header)} has the label {label}, {none}",
            )
        return place.astype(np.int32)


class Numbers:
    """Numbers as labels, of a public range that becomes [-1, 1]; those beyond it are clamped."""

    names: tuple[str, ...] | None = None
    classes = TENTHS

    def __init__(self, text: str, strict: bool) -> None:
        self._low, self._high = map(float, text.split(":"))
        self.range: tuple[float, float] | None = (self._low, self._high)
        self._strict = strict

    def of(self, table: Table, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Return the label of each of some rows, ascending, in [-1, 1]."""
        cells = Cells(table.path, "of labels", rows, table.column("label", rows), table.has_header)
        labels = cells.numbers()
        cells.refuse(np.isnan(labels), "a label that is missing", "remove the sample")
        if self._strict:
            outside = (labels < self._low) | (labels > self._high)
            cells.refuse(outside, "a label outside --label-range", "widen the range, or leave out --strict")
        return mapped(labels, self._low, self._high)


def mapped(values: NDArray[np.float64], low: float, high: float) -> NDArray[np.float64]:
    """Return numbers of a range as those of [-1, 1]; what is beyond it is clamped."""
    middle, half = low / 2 + high / 2, high / 2 - low / 2
    inside: NDArray[np.float64] = (np.clip(values, low, high) - middle) / half
    return np.clip(inside, -1, 1)


def _find_classes(table: Table, missing: frozenset[str]) -> NDArray[Any]:
    """Return the different labels of a file in order: at least two, and not so many that they are none."""
    found = plain(table, np.arange(0), "label", missing)
    for rows in row_blocks(table.samples, COLUMN_AT_ONCE):
        found = np.union1d(found, plain(table, rows, "label", missing))
        if len(found) > MOST_CLASSES or (SURELY_MANY < len(found) > table.samples / 3):
            no = (
                "these are no classes: if they are numbers, give --label-range LOW:HIGH and a loss of "
                "numbers such as squared; if another column has the classes, name it with --labels"
            )
            raise DataError(
                f"{table.path} has too many different labels; {no}",
                f"{table.path} has {len(found)} different labels in its first {rows[-1] + 1} rows; {no}",
            )
    if len(found) < 2:
        two = "classification needs at least two classes"
        raise DataError(
            f"{table.path}: every label is the same; {two}",
            f"{table.path}: every label is {shown(found[0])}; {two}",
        )
    return found


def plain(
    table: Table, rows: NDArray[np.int64], what: Column, missing: frozenset[str] = MISSING
) -> NDArray[Any]:
    """Return labels or owners of any kind as int64, or text as objects; none may be missing, or say so."""
    values: NDArray[Any] = table.column(what, rows)
    kind = values.dtype.kind
    if kind in "SUO":
        with reading(table.path):
            texts = [value.decode() if isinstance(value, bytes) else value for value in values.tolist()]
        faults = {text: fault for text in set(texts) if (fault := _fault(text, missing))}
        bad = next((k for k, text in enumerate(texts) if text in faults), None) if faults else None
        if bad is not None:
            fault, name = faults[texts[bad]], shown(texts[bad])
            raise DataError(
                f"{table.path} has {ONE[what]} {fault}",
                f"{table.path}: {row_text(rows[bad], table.has_header)} has the {what} {name}, {fault}",
            )
        return np.array([*texts, None], dtype=object)[:-1]
    if kind not in "biuf":
        raise InputError(f"{table.path}: {ONE[what]} must be a whole number or text, not {values.dtype}")
    with np.errstate(invalid="ignore"):
        whole = values.astype(np.int64)
    # Also false for NaN, and for what passes the range of 64-bit integers.
    bad_rows = np.flatnonzero(whole != values)
    if bad_rows.size:
        row = row_text(rows[bad_rows[0]], table.has_header)
        neither = "which is neither a whole number nor text"
        raise DataError(
            f"{table.path} has {ONE[what]} {neither}",
            f"{table.path}: {row} has the {what} {values[bad_rows[0]]}, {neither}",
        )
    return whole


def _fault(name: object, missing: frozenset[str]) -> str | None:
    """Say what is wrong with a label or owner that is to be text, if anything is."""
    if not isinstance(name, str) or not name.strip():
        return "which is empty"
    if UNFIT.search(name):
        return "with a character that no name may have; rename it"
    if name.strip().lower() in missing:
        return (
            "which says that it is missing: remove the sample, or give --missing-labels keep if that is a "
            "name like any other"
        )
    return None
