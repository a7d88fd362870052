"""Samples in a file of values separated by commas, semicolons or tabs, read whole."""

import csv
import gzip
from array import array
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mu2mpi.data.formats.table import OWNERS, ArrayTable, find_name, reading
from mu2mpi.errors import InputError

__all__ = ["read_csv"]

DELIMITERS = ",;\t"


def read_csv(path: Path, features: str | None, labels: str | None) -> ArrayTable:
    """Read a file whose first line names its columns, or holds numbers; columns are then called 0, 1, ...

    Names of several features are separated by commas; by default, all columns are but those of labels and
    owners.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    with reading(path), opener(path, "rt", encoding="utf-8-sig", newline="") as lines:
        first = next((line for line in lines if line.strip()), "")
        rows = csv.reader(chain([first], lines), delimiter=max(DELIMITERS, key=first.count), strict=True)
        names = [name.strip() for name in next(rows, [])]
        body = chain([], rows)
        if _are_numbers(names):
            names, body = [str(k) for k in range(len(names))], chain([names], rows)
        if len(set(names)) < len(names):
            raise InputError(f"{path}: two columns have the same name")
        columns = [names.index(find_name(path, names, labels, "labels"))]
        columns += [names.index(OWNERS)] if OWNERS in names else []
        chosen = [k for k in range(len(names)) if k not in columns]
        if features is not None:
            wanted = [name.strip() for name in features.split(",")]
            chosen = [names.index(find_name(path, names, name, "features")) for name in wanted]
        values = array("d")
        texts: list[list[str]] = [[] for _ in columns]
        for row in filter(None, body):
            if len(row) != len(names):
                raise InputError(
                    f"{path}: line {rows.line_num} has {len(row)} values, and the first line {len(names)}"
                )
            try:
                values.extend([float(row[k]) for k in chosen])
            except ValueError:
                name, value = next((k, row[k]) for k in chosen if not _are_numbers([row[k]]))
                raise InputError(
                    f"{path}: line {rows.line_num} has {value!r} in column {name}, which is not a number; "
                    "choose the columns with --features"
                ) from None
            for column, found in zip(columns, texts, strict=True):
                found.append(row[column].strip())
        table = np.asarray(values).reshape(len(texts[0]), len(chosen))
        return ArrayTable(path, table, *map(_typed, texts))


def _are_numbers(texts: Sequence[str]) -> bool:
    try:
        return bool([float(text) for text in texts])
    except ValueError:
        return False


def _typed(values: list[str]) -> NDArray[np.generic]:
    """Return whole numbers as such, so that 1 and 01 are the same and 2 comes before 10, or else text."""
    try:
        return np.array([int(value) for value in values], np.int64)
    except (ValueError, OverflowError):
        return np.array(values, dtype=object)
