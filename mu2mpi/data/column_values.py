"""Values of one column of a user's data file, and their conversion to numbers, category codes or names."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mu2mpi.core.arrays import BoolArray, FloatArray, IntArray
from mu2mpi.core.lazy import NDArray, np
from mu2mpi.data.redaction import DataError, printable, read_errors, row_label

# Texts that stand for a missing value in common tools, in lower case
MISSING_MARKERS = {"nan", "-nan", "na", "n/a", "<na>", "#n/a", "#na", "nat", "null", "none", "nil", "?", "."}
# Control characters and lone surrogates: HDF5 cannot store them, or a terminal executes them
FORBIDDEN_CHARACTERS = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
MISSING_CODE = -1  # category code of a missing value
UNDECLARED_CODE = -2  # category code of a value that the schema does not declare


@dataclass(frozen=True)
class ColumnValues:
    """Values of one column of a data file in given rows: numbers, or Python objects that are text or None."""

    path: Path
    column: str
    rows: IntArray
    values: NDArray[Any]
    has_header: bool = False

    def reject(self, is_bad: BoolArray, fault: str, remedy: str) -> None:
        """Raise DataError about the first column value that the mask `is_bad` marks, if there is one."""
        if is_bad.any():
            k = int(np.argmax(is_bad))
            row = row_label(int(self.rows[k]), self.has_header)
            column, value = f"column {printable(self.column) or 'without a name'}", printable(self.values[k])
            raise DataError(
                f"{self.path}: {column} has {fault}; {remedy}",
                f"{self.path}: {row} has '{value}' in {column}, {fault}; {remedy}",
            )

    def to_numbers(self) -> FloatArray:
        """Convert the column values to float64, missing ones to NaN; DataError if a value is not a number."""
        if self.values.dtype.kind in "biuf":
            return self.values.astype(np.float64)
        try:
            return np.array(list(map(float, self.values.tolist())), np.float64)
        except (TypeError, ValueError):
            numbers = [math.nan if _is_missing(text) else parse_number(text) for text in self._stripped()]
        bad = np.array([number is None for number in numbers], bool)
        self.reject(bad, "a value that is not a number", "correct it, or declare another type with --schema")
        return np.array(numbers, np.float64)

    def to_codes(self, declared: Mapping[str, int], are_integers: bool) -> IntArray:
        """Convert the column values to category codes by `declared`, a mapping from value texts to codes."""
        if self.values.dtype.kind in "biuf":
            distinct, inverse = np.unique(self.values, return_inverse=True)
            return np.array([_number_code(v, declared) for v in distinct.tolist()], np.int64)[inverse.ravel()]
        texts = self._stripped()
        code_of_text = {text: _text_code(text, declared, are_integers) for text in set(texts)}
        return np.array([code_of_text[text] for text in texts], np.int64)

    def to_names(self, missing_markers: set[str]) -> NDArray[Any]:
        """Convert a column of labels or owners to int64 or text; DataError if a value is missing."""
        if self.values.dtype.kind not in "SUO":
            with np.errstate(invalid="ignore"):
                ints = self.values.astype(np.int64)
            self.reject(ints != self.values, "a value that is neither a whole number nor text", "correct it")
            return ints
        texts = self._texts()
        faults: dict[str, Callable[[Any], object]] = {
            "a value that is missing": lambda text: not text or not text.strip(),
            "a character that no name may have": FORBIDDEN_CHARACTERS.search,
            "a value that says it is missing": lambda text: text.strip().lower() in missing_markers,
        }
        advice = "; names such as NA need --missing-labels keep" if missing_markers else ""
        remedy = f"correct or remove it{advice}"
        for fault, is_faulty in faults.items():
            faulty = {text for text in set(texts) if is_faulty(text)}
            self.reject(np.array([bool(faulty) and text in faulty for text in texts], bool), fault, remedy)
        return object_array(texts)

    def _texts(self) -> list[Any]:
        with read_errors(self.path):
            return [value.decode() if isinstance(value, bytes) else value for value in self.values.tolist()]

    def _stripped(self) -> list[str | None]:
        return [value if value is None else str(value).strip() for value in self._texts()]


def object_array(values: Sequence[Any]) -> NDArray[Any]:
    """Convert a sequence of values of any types to a one-dimensional array of dtype object."""
    return np.array([*values, None], dtype=object)[:-1]


def parse_number(text: str | None) -> float | None:
    """Convert text to a float; None if the text is not a number."""
    try:
        return float(text or "")
    except ValueError:
        return None


def _is_missing(text: str | None) -> bool:
    return not text or text.lower() in MISSING_MARKERS


def _text_code(text: str | None, declared: Mapping[str, int], are_integers: bool) -> int:
    if text is not None and text in declared:
        return declared[text]
    if text is None or _is_missing(text):
        return MISSING_CODE
    number = parse_number(text) if are_integers and "_" not in text else None  # float("1_2") is 12.
    return UNDECLARED_CODE if number is None else _number_code(number, declared)


def _number_code(number: float, declared: Mapping[str, int]) -> int:
    if isinstance(number, float) and not number.is_integer():
        return MISSING_CODE if math.isnan(number) else UNDECLARED_CODE
    return declared.get(str(int(number)), UNDECLARED_CODE)  # As floats, large integers may be equal.
