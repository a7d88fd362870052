"""File format of comma-, semicolon- or tab-separated values, read into memory."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any

from mu2mpi.core.errors import InputError
from mu2mpi.core.lazy import NDArray, np
from mu2mpi.core.registry import register
from mu2mpi.data.column_values import number_notation, object_array, parse_number
from mu2mpi.data.formats.format import TextFile, ValueType
from mu2mpi.data.redaction import DataError, describe_row, to_nfc

CSV_CELLS_PER_BLOCK = 1 << 18  # cells converted to columns at a time


@register
class CsvFile(TextFile):
    """File of comma-, semicolon- or tab-separated values; without a header, columns are named 0, 1, ..."""

    name, suffixes = "csv", (".csv", ".csv.gz", ".tsv", ".tsv.gz")
    is_table = True

    def __init__(self, path: Path, dimension: int = 0) -> None:
        super().__init__(path)
        with self._rows() as rows:
            first = [to_nfc(name.strip()) for name in next(rows, [])]
        is_number = (parse_number(name) is not None or number_notation([name]) for name in first)
        self.has_header = self.has_column_names = not first or not all(is_number)
        self.array_names = first if self.has_header else [str(k) for k in range(len(first))]

    @contextmanager
    def _rows(self) -> Iterator[Iterator[list[str]]]:
        with self.text() as lines:
            nonempty_lines = filter(str.strip, lines)
            first = next(nonempty_lines, "")
            # Neither quoted separators nor decimal commas count.
            separators = re.sub(r'"[^"]*"|(?<=\d),(?=\d)', "", first)
            is_tsv = self.path.name.lower().endswith((".tsv", ".tsv.gz"))
            delimiter = max("\t" if is_tsv else ",;\t", key=separators.count)
            if named := re.fullmatch(r'"?sep=([^"\s]|\t)"?\s*', first, re.IGNORECASE):  # as Excel writes it
                delimiter, first = named[1], next(nonempty_lines, "")
            yield filter(None, csv.reader(chain([first], lines), delimiter=delimiter, strict=True))

    def arrays(self, wanted_arrays: Mapping[str, ValueType]) -> dict[str, NDArray[Any]]:
        blocks: dict[str, list[NDArray[Any]]] = {name: [] for name in wanted_arrays}
        n_rows, width = 0, len(self.array_names)
        with self._rows() as lines:
            rows = islice(lines, int(self.has_header), None)
            while block := list(islice(rows, max(1, CSV_CELLS_PER_BLOCK // max(1, width)))):
                for number, row in enumerate(block, n_rows) if {*map(len, block)} != {width} else ():
                    if len(row) != width:
                        fault = f"has {len(row)} values, and the first {width}"
                        if (row if len(row) > width else self.array_names)[-1] == "":
                            fault += "; remove the separator at the end of its line"
                        place = f"{self.path}: {describe_row(number, self.has_header)}"
                        raise DataError(f"{self.path}: a row {fault}", f"{place} {fault}")
                numbers = np.arange(n_rows, n_rows + len(block))
                columns = dict(zip(self.array_names, zip(*block, strict=True), strict=True))
                n_rows += len(block)
                for name, value_type in wanted_arrays.items():
                    if value_type == "numbers":
                        values = self.column_values(name, numbers, object_array(columns[name])).to_numbers()
                    else:
                        values = object_array([*map(sys.intern, map(str.strip, columns[name]))])
                    blocks[name].append(values)
        if n_rows == 0:
            raise InputError(f"{self.path} is empty: it has no rows but the first line")
        arrays = {name: np.concatenate(column_blocks) for name, column_blocks in blocks.items()}
        names = [name for name, value_type in wanted_arrays.items() if value_type == "names"]
        return arrays | {name: _to_integers_or_texts(arrays[name].tolist()) for name in names}


def _to_integers_or_texts(values: list[str]) -> NDArray[np.generic]:
    with suppress(ValueError, OverflowError):
        if not any("_" in value for value in values):  # int("1_2") is 12.
            return np.array([int(value) for value in values], np.int64)
    return object_array(values)
