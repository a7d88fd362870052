"""Separated values, which are read whole."""

import csv
import gzip
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.data.cells import Cells, objects
from mu2mpi.data.formats.columns import File, Kind
from mu2mpi.data.formats.table import OWNERS, Table, check_apart, find_name
from mu2mpi.data.telling import DataError, reading, row_text
from mu2mpi.errors import InputError
from mu2mpi.memory import check_room

BLOCK_CELLS, BYTES_A_CELL = 1 << 18, 100
"""Cells that are turned into columns at once, and the memory that each may take meanwhile."""


class Csv(File):
    """A file whose first line names its columns, or holds numbers; columns are then called 0, 1, ...

    The standard library splits the lines: unlike pandas, it refuses rows that lack cells, and takes no
    seconds to be imported.
    """

    is_table = True

    def __init__(self, path: Path, dimension: int = 0) -> None:
        super().__init__(path)
        with self._rows() as rows:
            first = [name.strip() for name in next(rows, [])]
        self.has_header = not _are_numbers(first)
        self.names = first if self.has_header else [str(k) for k in range(len(first))]
        if len(set(self.names)) < len(self.names):
            raise InputError(f"{path}: two columns have the same name")

    @contextmanager
    def _rows(self) -> Iterator[Iterator[list[str]]]:
        packed = self.path.suffix.lower() == ".gz"
        opened: Any = (gzip.open if packed else open)(self.path, "rb")
        with reading(self.path), io.TextIOWrapper(opened, encoding="utf-8-sig", newline="") as lines:
            first = next((line for line in lines if line.strip()), "")
            delimiter = max(",;\t", key=first.count)
            yield filter(None, csv.reader(chain([first], lines), delimiter=delimiter, strict=True))

    def table(self, features: str | None, labels: str | None) -> Table:
        """Return samples whose features are all columns but labels and owners, or those named with commas."""
        others = [find_name(self.path, self.names, labels, "labels"), *({OWNERS} & {*self.names})]
        wanted = [name for name in self.names if name not in others]
        if features is not None:
            wanted = [
                find_name(self.path, self.names, name.strip(), "features") for name in features.split(",")
            ]
            check_apart(self.path, wanted, others)
        kinds: dict[str, Kind] = {**dict.fromkeys(wanted, "numbers"), **dict.fromkeys(others, "names")}
        arrays = self.arrays(kinds)
        matrix = np.column_stack([np.empty((len(arrays[others[0]]), 0)), *(arrays[name] for name in wanted)])
        found = Table(self.path, matrix, *(arrays[name] for name in others))
        found.has_header, found.feature_names = self.has_header, tuple(wanted) if self.has_header else None
        return found

    def arrays(self, wanted: Mapping[str, Kind]) -> dict[str, NDArray[Any]]:
        """Return columns by name: numbers, NaN where one is missing, or texts as objects."""
        parts: dict[str, list[NDArray[Any]]] = {name: [] for name in wanted}
        known: dict[str, str] = {}
        done, width = 0, max(1, len(self.names))
        places = {name: k for k, name in enumerate(self.names)}
        with self._rows() as rows:
            next(rows if self.has_header else iter(()), None)
            while block := list(islice(rows, max(1, BLOCK_CELLS // width))):
                check_room(self.path, BYTES_A_CELL * len(block) * width)
                self._check_lengths(block, done)
                numbers, cells = np.arange(done, done + len(block)), list(zip(*block, strict=True))
                done += len(block)
                for name, kind in wanted.items():
                    texts = cells[places[name]]
                    if kind == "numbers":
                        values = Cells(self.path, name, numbers, objects(texts), self.has_header).numbers()
                    else:
                        # One copy of what occurs often, such as the name of a category, is enough.
                        values = objects([known.setdefault(t, t) for t in map(str.strip, texts)])
                    parts[name].append(values)
            if done == 0:
                raise InputError(f"{self.path} is empty: it has no rows but the first line")
        columns = {name: np.concatenate(blocks) for name, blocks in parts.items()}
        return columns | {n: _typed(columns[n].tolist()) for n, kind in wanted.items() if kind == "names"}

    def _check_lengths(self, block: list[list[str]], done: int) -> None:
        width = len(self.names)
        if {*map(len, block)} != {width}:
            number, row = next((n, row) for n, row in enumerate(block, done) if len(row) != width)
            where = row_text(number, self.has_header)
            raise DataError(
                f"{self.path}: a row has more or fewer values than the first",
                f"{self.path}: {where} has {len(row)} values, and the first {width}",
            )


def _are_numbers(texts: Sequence[str]) -> bool:
    try:
        return bool([float(text) for text in texts])
    except ValueError:
        return False


def _typed(values: list[str]) -> NDArray[np.generic]:
    """Whole numbers as such, so that 1 and 01 are the same and 2 comes before 10, or else text."""
    try:
        # Python takes 1_2 for 12, which to anyone else is a name.
        if not any("_" in value for value in values):
            return np.array([int(value) for value in values], np.int64)
    except (ValueError, OverflowError):
        pass
    return objects(values)
