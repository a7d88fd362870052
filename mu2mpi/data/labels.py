"""Labels and owners without a schema: the classes that occur in a file."""

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.data.cells import MISSING
from mu2mpi.data.formats.table import Column, Table, reading, row_text, shown
from mu2mpi.data.source import COLUMN_AT_ONCE, row_blocks
from mu2mpi.data.telling import DataError
from mu2mpi.errors import InputError

# Beyond the second, there should be at least three samples of each class, on average.
MOST_CLASSES, SURELY_MANY = 1_000_000, 100

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
        none = f"of which {self._training} has no sample"
        _refuse(table, "label", rows, labels, self._values[place] != labels, none)
        return place.astype(np.int32)


def _find_classes(table: Table, missing: frozenset[str]) -> NDArray[Any]:
    """Return the different labels of a file in order: two at least, and not too many to be classes."""
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
    """Labels or owners of any kind as int64, or text as objects; none may be missing, or say so."""
    values: NDArray[Any] = table.column(what, rows)
    if values.dtype.kind in "SUO":
        with reading(table.path):
            texts = [value.decode() if isinstance(value, bytes) else value for value in values.tolist()]
        faults = {text: fault for text in set(texts) if (fault := _fault(text, missing))}
        bad = np.array([bool(faults) and text in faults for text in texts], bool)
        _refuse(table, what, rows, values, bad, faults[texts[int(np.argmax(bad))]] if faults else "")
        return np.array([*texts, None], dtype=object)[:-1]
    if values.dtype.kind not in "biuf":
        raise InputError(f"{table.path}: each {what} must be a whole number or text, not {values.dtype}")
    with np.errstate(invalid="ignore"):
        whole = values.astype(np.int64)
    # Also false for NaN, and for what passes the range of 64-bit integers.
    _refuse(table, what, rows, values, whole != values, "which is neither a whole number nor text")
    return whole


def _refuse(
    table: Table, what: Column, rows: NDArray[np.int64], values: Any, bad: NDArray[np.bool_], fault: str
) -> None:
    if bad.any():
        k = int(np.argmax(bad))
        raise DataError(
            f"{table.path} has {'a label' if what == 'label' else 'an owner'} {fault}",
            f"{table.path}: {row_text(rows[k], table.has_header)} has the {what} {shown(values[k])}, {fault}",
        )


def _fault(name: object, missing: frozenset[str]) -> str | None:
    """Return what is wrong with a label or owner that is to be text, if anything is."""
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
