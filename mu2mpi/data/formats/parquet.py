"""Columns of Parquet files, of which those columns and groups of rows are read that are needed."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.data.formats.columns import Columns, Kind
from mu2mpi.data.formats.table import reading, shown
from mu2mpi.errors import InputError
from mu2mpi.files import identity
from mu2mpi.memory import check_room

BYTES_A_NUMBER, BYTES_A_TEXT = 8, 64


def parquet_names(path: Path) -> list[str]:
    """Return the names of all columns."""
    with reading(path), _opened(path) as file:
        return list(file.schema_arrow.names)


class ParquetColumns(Columns):
    """Columns of a Parquet file; the last group of rows that was read stays in memory."""

    def __init__(self, path: Path, wanted: Mapping[str, Kind]) -> None:
        with reading(path), _opened(path) as file:
            facts, schema = file.metadata, file.schema_arrow
            if len(set(schema.names)) < len(schema.names):
                raise InputError(f"{path}: two columns have the same name")
            sizes = [facts.row_group(k).num_rows for k in range(facts.num_row_groups)]
            for name in wanted:
                _check_type(path, name, schema.field(name).type)
        self._starts = np.cumsum([0, *sizes])
        self._wanted, self._state = list(wanted), identity(path)
        self._group, self._held = -1, {name: np.empty(0) for name in wanted}
        width = sum(BYTES_A_NUMBER if kind == "numbers" else BYTES_A_TEXT for kind in wanted.values())
        check_room(path, max(sizes, default=0) * width)
        super().__init__(path, int(self._starts[-1]))

    def read(self, names: Sequence[str], rows: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Return some rows of each, from one group after the other."""
        bounds = np.searchsorted(rows, self._starts)
        groups = np.flatnonzero(np.diff(bounds)).tolist() or [0]
        parts: dict[str, list[NDArray[Any]]] = {name: [] for name in names}
        for group in groups:
            held = self._of_group(group)
            places = rows[bounds[group] : bounds[group + 1]] - self._starts[group]
            for name in names:
                parts[name].append(held[name][places])
        return {name: np.concatenate(pieces) for name, pieces in parts.items()}

    def _of_group(self, group: int) -> dict[str, NDArray[Any]]:
        if identity(self.path) != self._state:
            raise InputError(
                f"{self.path} has changed while it was in use; put it back, and repeat the command"
            )
        if group != self._group:
            with reading(self.path), _opened(self.path) as file:
                table = file.read_row_group(group, columns=self._wanted, use_threads=False)
                if table.num_rows != self._starts[group + 1] - self._starts[group]:
                    raise InputError(f"{self.path} is damaged: a group has fewer rows than it says, or more")
                self._held = {name: _array(table.column(name)) for name in self._wanted}
                self._group = group
        return self._held


def _opened(path: Path) -> Any:
    try:
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise InputError(
            f'{path} is read by pyarrow, which is missing: pip install "mu2mpi[parquet]"'
        ) from None
    return ParquetFile(path, memory_map=False)


def _value_type(kind: Any) -> Any:
    """Return the type of what a column holds, be it by way of a dictionary or not."""
    return getattr(kind, "value_type", kind) if str(kind).startswith("dictionary") else kind


def _check_type(path: Path, name: str, kind: Any) -> None:
    import pyarrow.types as types

    kinds = types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null
    texts = types.is_string, types.is_large_string
    if not any(fits(_value_type(kind)) for fits in (*kinds, *texts)):
        raise InputError(
            f"{path}: column {shown(name)} has the type {kind}; declare it as ignored, or write it as "
            "numbers or text"
        )


def _array(column: Any) -> NDArray[Any]:
    """Return a column as numbers, NaN where there is none, or as objects: texts, or None."""
    import pyarrow as pa

    kind = _value_type(column.type)
    if pa.types.is_decimal(kind):
        kind = pa.float64()
    if pa.types.is_boolean(kind) and column.null_count:
        kind = pa.float64()
        column = column.cast(pa.int8())
    values: NDArray[Any] = column.cast(kind).to_numpy(zero_copy_only=False)
    return values
