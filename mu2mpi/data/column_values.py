"""Cells of a column of a user's file, as numbers, as codes of declared values, or as names."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mu2mpi.core.lazy import NDArray, np
from mu2mpi.data.redaction import DataError, reading, row_text, shown

# What usual tools write in small or capital letters for a value that is missing
MISSING = {"nan", "-nan", "na", "n/a", "<na>", "#n/a", "#na", "nat", "null", "none", "nil", "?", "."}
# Characters that no name has: a result cannot hold them, or a terminal obeys them
UNFIT = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
ABSENT, UNKNOWN = -1, -2  # codes of a value that is missing, and of one that is not declared


@dataclass(frozen=True)
class Cells:
    """The values that a column has in some rows of a file: numbers, or objects that are texts or None."""

    path: Path
    column: str
    rows: NDArray[np.int64]
    values: NDArray[Any]
    has_header: bool = False

    def refuse(self, bad: NDArray[np.bool_], what: str, remedy: str) -> None:
        """Raise DataError if there is a bad value among these."""
        if bad.any():
            k = int(np.argmax(bad))
            row = row_text(int(self.rows[k]), self.has_header)
            where, value = f"column {shown(self.column) or 'without a name'}", shown(self.values[k])
            raise DataError(
                f"{self.path}: {where} has {what}; {remedy}",
                f"{self.path}: {row} has '{value}' in {where}, {what}; {remedy}",
            )

    def numbers(self) -> NDArray[np.float64]:
        """Return the values as numbers, NaN where one is missing."""
        if self.values.dtype.kind in "biuf":
            return self.values.astype(np.float64)
        try:
            return np.array(list(map(float, self.values.tolist())), np.float64)
        except (TypeError, ValueError):
            found = [math.nan if _says_missing(text) else number_in(text) for text in self._stripped()]
        bad = np.array([number is None for number in found], bool)
        self.refuse(bad, "a value that is not a number", "correct it, or declare another type with --schema")
        return np.array(found, np.float64)

    def codes(self, known: Mapping[str, int], whole: bool) -> NDArray[np.int64]:
        """Return the code of each value: ABSENT if it is missing, and UNKNOWN if it is none of those known.

        Whole numbers are known by their decimal digits. Where all are `whole`, so are texts that say them in
        another way, such as 1.0.
        """
        if self.values.dtype.kind in "biuf":
            different, places = np.unique(self.values, return_inverse=True)
            return np.array([_code_of_number(v, known) for v in different.tolist()], np.int64)[places.ravel()]
        texts = self._stripped()
        codes = {text: _code(text, known, whole) for text in set(texts)}
        return np.array([codes[text] for text in texts], np.int64)

    def names(self, missing: set[str]) -> NDArray[Any]:
        """Return labels or owners as int64, or text as objects; none may be missing, or say so."""
        if self.values.dtype.kind not in "SUO":
            with np.errstate(invalid="ignore"):
                whole = self.values.astype(np.int64)
            # Also false for NaN, and for what passes the range of 64-bit integers.
            self.refuse(whole != self.values, "a value that is neither a whole number nor text", "correct it")
            return whole
        texts = self._texts()
        faults: dict[str, Callable[[Any], object]] = {
            "a value that is missing": lambda text: not text or not text.strip(),
            "a character that no name may have": UNFIT.search,
            "a value that says it is missing": lambda text: text.strip().lower() in missing,
        }
        remedy = f"correct or remove it{'; names such as NA need --missing-labels keep' if missing else ''}"
        for what, is_bad in faults.items():
            bad = {text for text in set(texts) if is_bad(text)}
            self.refuse(np.array([bool(bad) and text in bad for text in texts], bool), what, remedy)
        return objects(texts)

    def _texts(self) -> list[Any]:
        with reading(self.path):
            return [value.decode() if isinstance(value, bytes) else value for value in self.values.tolist()]

    def _stripped(self) -> list[str | None]:
        return [value if value is None else str(value).strip() for value in self._texts()]


def objects(texts: Sequence[Any]) -> NDArray[Any]:
    """Return an array of texts as they are."""
    return np.array([*texts, None], dtype=object)[:-1]


def _says_missing(text: str | None) -> bool:
    return not text or text.lower() in MISSING


def number_in(text: str | None) -> float | None:
    """Return the number that a text is, or None."""
    try:
        return float(text or "")
    except ValueError:
        return None


def _code(text: str | None, known: Mapping[str, int], whole: bool) -> int:
    if text is not None and text in known:
        return known[text]
    if text is None or _says_missing(text):
        return ABSENT
    # Python takes 1_2 for 12, which to anyone else is a name.
    number = number_in(text) if whole and "_" not in text else None
    return UNKNOWN if number is None else _code_of_number(number, known)


def _code_of_number(number: float, known: Mapping[str, int]) -> int:
    if isinstance(number, float) and not number.is_integer():
        return ABSENT if math.isnan(number) else UNKNOWN
    # A whole number may be too large for a float to tell it from the next.
    return known.get(str(int(number)), UNKNOWN)
