"""Separated values, read whole."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any

from mu2mpi.core.errors import InputError
from mu2mpi.core.lazy import NDArray, np
from mu2mpi.core.memory import check_room
from mu2mpi.core.registry import register
from mu2mpi.data.column_values import Cells, number_in, objects
from mu2mpi.data.formats.format import Kind, TextFile
from mu2mpi.data.redaction import DataError, row_text

# Cells that are turned into columns at once, and the memory that each may take meanwhile
BLOCK_CELLS, BYTES_A_CELL = 1 << 18, 100


@register
class Csv(TextFile):
    """A file whose first line names its columns, or holds numbers; columns are then called 0, 1, ..."""

    name, suffixes = "csv", (".csv", ".csv.gz")
    is_table = True

    def __init__(self, path: Path, dimension: int = 0) -> None:
        super().__init__(path)
        with self._rows() as rows:
            first = [name.strip() for name in next(rows, [])]
        self.has_header = self.has_names = not first or None in map(number_in, first)
        self.names = first if self.has_header else [str(k) for k in range(len(first))]

    @contextmanager
    def _rows(self) -> Iterator[Iterator[list[str]]]:
        with self.text() as lines:
            first = next((line for line in lines if line.strip()), "")
            # Unlike pandas, this reader refuses rows that lack cells, and takes no seconds to be imported.
            delimiter = max(",;\t", key=first.count)
            yield filter(None, csv.reader(chain([first], lines), delimiter=delimiter, strict=True))

    def arrays(self, wanted: Mapping[str, Kind]) -> dict[str, NDArray[Any]]:
        parts: dict[str, list[NDArray[Any]]] = {name: [] for name in wanted}
        known: dict[str, str] = {}
        done, width = 0, len(self.names)
        with self._rows() as lines:
            rows = islice(lines, int(self.has_header), None)
            while block := list(islice(rows, max(1, BLOCK_CELLS // max(1, width)))):
                check_room(self.path, BYTES_A_CELL * len(block) * width)
                for number, row in enumerate(block, done) if {*map(len, block)} != {width} else ():
                    if len(row) != width:
                        raise DataError(
                            f"{self.path}: a row has more or fewer values than the first",
                            f"{self.path}: {row_text(number, self.has_header)} has {len(row)} values, and "
                            f"the first {width}",
                        )
                numbers = np.arange(done, done + len(block))
                columns = dict(zip(self.names, zip(*block, strict=True), strict=True))
                done += len(block)
                for name, kind in wanted.items():
                    if kind == "numbers":
                        texts = objects(columns[name])
                        values = Cells(self.path, name, numbers, texts, self.has_header).numbers()
                    else:
                        # One copy of what occurs often, such as the name of a category, is enough.
                        values = objects([known.setdefault(t, t) for t in map(str.strip, columns[name])])
                    parts[name].append(values)
        if done == 0:
            raise InputError(f"{self.path} is empty: it has no rows but the first line")
        found = {name: np.concatenate(blocks) for name, blocks in parts.items()}
        return found | {n: _typed(found[n].tolist()) for n, kind in wanted.items() if kind == "names"}


def _typed(values: list[str]) -> NDArray[np.generic]:
    """Whole numbers as such, so that 1 and 01 are the same and 2 comes before 10, or else text."""
    with suppress(ValueError, OverflowError):
        # Python takes 1_2 for 12, which to anyone else is a name.
        if not any("_" in value for value in values):
            return np.array([int(value) for value in values], np.int64)
    return objects(values)
