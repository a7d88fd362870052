"""Samples in a file of comma-separated values, read whole."""

import csv
import gzip
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mu2mpi.data.formats.table import LABELS, OWNERS, ArrayTable, find_name, reading
from mu2mpi.errors import InputError

__all__ = ["read_csv"]

DELIMITERS = ",;\t"


def read_csv(path: Path, features: str | None, labels: str | None) -> ArrayTable:
    """Read a file of values separated by commas, semicolons or tabs.

    Columns have the names in its first line, or are counted from 0 if that line holds numbers alone.

    Parameters
    ----------
    path : Path
        The file, which may be compressed by gzip.
    features : str, optional
        Names of columns, separated by commas; by default all but those of labels and owners.
    labels : str, optional
        Name of a column; by default a usual one. One of the name ``machine`` holds owners.

    Raises
    ------
    InputError
        If the file is damaged, or does not hold what is asked for; the message names the line.
    """
    with reading(path), _opened(path) as lines:
        first = next((line for line in lines if line.strip()), "")
        delimiter = max(DELIMITERS, key=first.count)
        rows = csv.reader(chain([first], lines), delimiter=delimiter, strict=True)
        head = [name.strip() for name in next(rows, [])]
        names, body = (
            ([str(k) for k in range(len(head))], chain([head], rows)) if _are_numbers(head) else (head, rows)
        )
        if len(set(names)) < len(names):
            raise InputError(f"{path}: two columns have the same name")
        label = names.index(find_name(path, names, labels, LABELS, "labels"))
        owner = names.index(OWNERS) if OWNERS in names else None
        chosen = _columns(path, names, features, label, owner)
        return _table(path, body, lambda: f"{path}: line {rows.line_num}", len(names), chosen, label, owner)


@contextmanager
def _opened(path: Path) -> Iterator[Iterator[str]]:
    with (
        gzip.open(path, "rt", encoding="utf-8-sig", newline="")
        if path.suffix == ".gz"
        else open(path, encoding="utf-8-sig", newline="")
    ) as file:
        yield iter(file)


def _are_numbers(head: Sequence[str]) -> bool:
    try:
        return bool([float(name) for name in head])
    except ValueError:
        return False


def _columns(path: Path, names: Sequence[str], given: str | None, label: int, owner: int | None) -> list[int]:
    """Return the numbers of the columns that hold features."""
    if given is None:
        return [k for k in range(len(names)) if k not in (label, owner)]
    return [names.index(find_name(path, names, name.strip(), (), "features")) for name in given.split(",")]


def _table(
    path: Path,
    rows: Iterator[list[str]],
    place: Callable[[], str],
    width: int,
    chosen: list[int],
    label: int,
    owner: int | None,
) -> ArrayTable:
    features: list[NDArray[np.float64]] = []
    labels, owners = [], []
    for row in rows:
        if not row:
            continue
        if len(row) != width:
            raise InputError(f"{place()} has {len(row)} values, and the first line {width}")
        try:
            features.append(np.array([float(row[k]) for k in chosen]))
        except ValueError:
            name, value = next((k, row[k]) for k in chosen if not _are_numbers([row[k]]))
            raise InputError(
                f"{place()} has {value!r} in column {name}, which is not a number; choose the "
                "columns with --features"
            ) from None
        labels.append(row[label].strip())
        if owner is not None:
            owners.append(row[owner].strip())
    table = np.stack(features) if features else np.empty((0, len(chosen)))
    return ArrayTable(path, table, _typed(labels), _typed(owners) if owner is not None else None)


def _typed(values: list[str]) -> NDArray[np.generic]:
    """Return whole numbers as such, so that 1 and 01 are the same and 2 comes before 10, or else text."""
    try:
        return np.array([int(value) for value in values], np.int64)
    except (ValueError, OverflowError):
        return np.array(values, dtype=object)
