"""Values of one column of a user's data file, and their conversion to numbers, category codes or names."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any

from mu2mpi.core.arrays import BoolArray, FloatArray, IntArray
from mu2mpi.core.lazy import NDArray, np
from mu2mpi.data.redaction import DataError, as_input_errors, describe_row, safe_text, to_nfc

# Texts that stand for a missing value in common tools, in lower case
MISSING_MARKERS = {"nan", "-nan", "na", "n/a", "<na>", "#n/a", "#na", "nat", "null", "none", "nil", "?", "."}
# Control characters and lone surrogates: HDF5 cannot store them, or a terminal executes them
UNPRINTABLE_CHARACTERS = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
# Notations of numbers that float() rejects, by name: their pattern, and what to do about them
_NUMBER_NOTATIONS = {
    "a percent sign": (r"[-+]?[\d.,]*\d\s?%", "remove the signs"),
    "a decimal comma": (
        r"[-+]?\d*,\d+(e[-+]?\d+)?",
        'declare decimal = "," in a schema, unless it marks thousands',
    ),
    "thousands marks": (r"[-+]?\d{1,3}([,.' ’\u00a0\u202f])\d{3}(\1\d{3})*([.,]\d+)?", "remove the marks"),
}
_SWAP_COMMA_AND_POINT = str.maketrans(",.", ".,")
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
    decimal: str = "."  # decimal mark of numbers in text

    def reject_values(self, is_bad: BoolArray, reason: str, advice: str) -> None:
        """Raise DataError about the first column value that the mask `is_bad` marks, if there is one."""
        if is_bad.any():
            k = int(np.argmax(is_bad))
            row, value = describe_row(int(self.rows[k]), self.has_header), safe_text(self.values[k])
            column = f"column {safe_text(self.column) or 'without a name'}"
            raise DataError(
                f"{self.path}: {column} has {reason}; {advice}",
                f"{self.path}: {row} has '{value}' in {column}, {reason}; {advice}",
            )

    def to_numbers(self) -> FloatArray:
        """Convert the column values to float64, missing ones to NaN; DataError if a value is not a number."""
        if self.values.dtype.kind in "biuf":
            return self.values.astype(np.float64)
        with suppress(TypeError, ValueError):
            if self.decimal == ".":
                return np.array(list(map(float, self.values.tolist())), np.float64)
        texts = self._number_texts()
        numbers = [math.nan if _is_missing(text) else parse_number(text) for text in texts]
        is_bad = np.array([number is None for number in numbers], bool)
        reason, advice = "a value that is not a number", "correct it, or declare another type with --schema"
        if is_bad.any() and (notation := number_notation([*map(str, compress(texts, is_bad))])):
            reason, advice = f"a number with {notation}", _NUMBER_NOTATIONS[notation][1]
            if self.decimal == "," and notation == "a decimal comma":
                reason, advice = "a number with a decimal point", "the schema declares decimal commas"
        self.reject_values(is_bad, reason, advice)
        return np.array(numbers, np.float64)

    def to_category_codes(self, category_codes: Mapping[str, int], match_integers: bool) -> IntArray:
        """Convert the column values to codes by `category_codes`, a mapping from value texts to codes."""
        if self.values.dtype.kind in "biuf":
            distinct, inverse = np.unique(self.values, return_inverse=True)
            codes = [_number_category(number, category_codes) for number in distinct.tolist()]
            return np.array(codes, np.int64)[inverse.ravel()]
        texts = self._number_texts() if match_integers else self._stripped_texts()
        code_of_text = {text: _text_category(text, category_codes, match_integers) for text in set(texts)}
        return np.array([code_of_text[text] for text in texts], np.int64)

    def to_integers_or_texts(self, missing_markers: set[str]) -> NDArray[Any]:
        """Convert a column of labels or owners to int64 or text; DataError if a value is missing."""
        if self.values.dtype.kind not in "SUO":
            with np.errstate(invalid="ignore"):
                ints = self.values.astype(np.int64)
            reason = "a value that is neither a whole number nor text"
            advice = "correct it, or give numeric labels a --label-range LOW:HIGH and --loss squared"
            self.reject_values(ints != self.values, reason, advice)
            return ints
        texts = self._texts()
        faults: dict[str, Callable[[Any], object]] = {
            "a value that is missing": lambda text: not text or not text.strip(),
            "a character that no name may have": UNPRINTABLE_CHARACTERS.search,
            "a value that says it is missing": lambda text: text.strip().lower() in missing_markers,
        }
        hint = "; names such as NA need --missing-labels keep" if missing_markers else ""
        for reason, is_faulty in faults.items():
            faulty = {text for text in set(texts) if is_faulty(text)}
            is_bad = np.array([text in faulty for text in texts] if faulty else [], bool)
            self.reject_values(is_bad, reason, f"correct or remove it{hint}")
        return object_array(texts)

    def _texts(self) -> list[Any]:
        with as_input_errors(self.path):
            texts = [value.decode() if isinstance(value, bytes) else value for value in self.values.tolist()]
        return [to_nfc(value) if isinstance(value, str) else value for value in texts]

    def _stripped_texts(self) -> list[str | None]:
        return [value if value is None else str(value).strip() for value in self._texts()]

    def _number_texts(self) -> list[str | None]:
        """Texts of numbers with decimal points, each without spaces around it."""
        texts = self._stripped_texts()
        swap = _SWAP_COMMA_AND_POINT if self.decimal == "," else {}
        return [text if text is None or _is_missing(text) else text.translate(swap) for text in texts]


def object_array(values: Sequence[Any]) -> NDArray[Any]:
    """Convert a sequence of values of any types to a one-dimensional array of dtype object."""
    return np.array([*values, None], dtype=object)[:-1]


def parse_number(text: str | None) -> float | None:
    """Convert text to a float; None if the text is not a number."""
    try:
        return float(text or "")
    except ValueError:
        return None


def number_notation(texts: Sequence[str]) -> str | None:
    """Name of the first notation of `_NUMBER_NOTATIONS` that all of the texts have; None if there is none."""
    for name, (pattern, _) in _NUMBER_NOTATIONS.items():
        if all(re.fullmatch(pattern, text, re.IGNORECASE) for text in texts):
            return name
    return None


def _is_missing(text: str | None) -> bool:
    return not text or text.lower() in MISSING_MARKERS


def _text_category(text: str | None, category_codes: Mapping[str, int], match_integers: bool) -> int:
    if text is not None and text in category_codes:
        return category_codes[text]
    if text is None or _is_missing(text):
        return MISSING_CODE
    number = parse_number(text) if match_integers and "_" not in text else None  # float("1_2") is 12.
    return UNDECLARED_CODE if number is None else _number_category(number, category_codes)


def _number_category(number: float, category_codes: Mapping[str, int]) -> int:
    if isinstance(number, float) and not number.is_integer():
        return MISSING_CODE if math.isnan(number) else UNDECLARED_CODE
    # As floats, large integers may be equal.
    return category_codes.get(str(int(number)), UNDECLARED_CODE)
