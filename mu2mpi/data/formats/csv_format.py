"""File format of comma-, semicolon- or tab-separated values, read into memory."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any

from mu2mpi.core.errors import InputError
from mu2mpi.core.lazy import NDArray, np
from mu2mpi.core.memory import check_fits_in_memory
from mu2mpi.core.registry import register
from mu2mpi.data.column_values import ColumnValues, object_array, parse_number
from mu2mpi.data.formats.format import TextFile, ValueKind
from mu2mpi.data.redaction import DataError, row_label

CELLS_PER_BLOCK = 1 << 18  # cells converted to columns at a time
BYTES_PER_CELL = 100  # memory of a cell during the conversion


@register
class Csv(TextFile):
    """File of comma-, semicolon- or tab-separated values; without a header, columns are named 0, 1, ..."""

    name, suffixes = "csv", (".csv", ".csv.gz")
    is_table = True

    def __init__(self, path: Path, dimension: int = 0) -> None:
        super().__init__(path)
        with self._rows() as rows:
            first = [name.strip() for name in next(rows, [])]
        self.has_header = self.has_names = not first or None in map(parse_number, first)
        self.names = first if self.has_header else [str(k) for k in range(len(first))]

    @contextmanager
    def _rows(self) -> Iterator[Iterator[list[str]]]:
        with self.text() as lines:
            first = next((line for line in lines if line.strip()), "")
            delimiter = max(",;\t", key=first.count)
            yield filter(None, csv.reader(chain([first], lines), delimiter=delimiter, strict=True))

    def arrays(self, wanted: Mapping[str, ValueKind]) -> dict[str, NDArray[Any]]:
        blocks: dict[str, list[NDArray[Any]]] = {name: [] for name in wanted}
        cache: dict[str, str] = {}
        n_rows, width = 0, len(self.names)
        with self._rows() as lines:
            rows = islice(lines, int(self.has_header), None)
            while block := list(islice(rows, max(1, CELLS_PER_BLOCK // max(1, width)))):
                check_fits_in_memory(self.path, BYTES_PER_CELL * len(block) * width)
                for number, row in enumerate(block, n_rows) if {*map(len, block)} != {width} else ():
                    if len(row) != width:
                        detail = f"{row_label(number, self.has_header)} has {len(row)} values, and the first"
                        message = f"{self.path}: a row has more or fewer values than the first"
                        raise DataError(message, f"{self.path}: {detail} {width}")
                numbers = np.arange(n_rows, n_rows + len(block))
                columns = dict(zip(self.names, zip(*block, strict=True), strict=True))
                n_rows += len(block)
                for name, kind in wanted.items():
                    if kind == "numbers":
                        texts = object_array(columns[name])
                        values = ColumnValues(self.path, name, numbers, texts, self.has_header).to_numbers()
                    else:
                        values = object_array([cache.setdefault(t, t) for t in map(str.strip, columns[name])])
                    blocks[name].append(values)
        if n_rows == 0:
            raise InputError(f"{self.path} is empty: it has no rows but the first line")
        arrays = {name: np.concatenate(column_blocks) for name, column_blocks in blocks.items()}
        names = [name for name, kind in wanted.items() if kind == "names"]
        return arrays | {name: _integers_or_objects(arrays[name].tolist()) for name in names}


def _integers_or_objects(values: list[str]) -> NDArray[np.generic]:
    with suppress(ValueError, OverflowError):
        if not any("_" in value for value in values):  # int("1_2") is 12.
            return np.array([int(value) for value in values], np.int64)
    return object_array(values)
