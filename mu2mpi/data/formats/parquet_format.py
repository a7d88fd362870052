"""File format Parquet, of which only the needed columns and row groups are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mu2mpi.core.arrays import IntArray
from mu2mpi.core.errors import InputError, import_extra
from mu2mpi.core.files import file_identity
from mu2mpi.core.lazy import NDArray, np
from mu2mpi.core.memory import check_fits_in_memory
from mu2mpi.core.registry import register
from mu2mpi.data.formats.format import ColumnReader, DataFile, Table, ValueType
from mu2mpi.data.redaction import as_input_errors, check_unchanged, safe_text


@register
class ParquetFile(DataFile):
    """Parquet file whose columns are declared by a schema."""

    name, suffixes = "parquet", (".parquet",)
    is_table = True

    def __init__(self, path: Path, dimension: int = 0) -> None:
        super().__init__(path)
        with as_input_errors(path), _open_parquet(path) as file:
            self.array_names = list(file.schema_arrow.names)

    def arrays(self, wanted_arrays: Mapping[str, ValueType]) -> dict[str, Any]:
        reader = self.column_reader(wanted_arrays)
        return reader.read_columns(list(wanted_arrays), np.arange(reader.samples))

    def table(self, features: str | None, labels: str | None) -> Table:
        raise InputError(f"{self.path} needs a --schema; `mu2mpi init {self.path}` writes one to fill in")

    def column_reader(self, wanted_arrays: Mapping[str, ValueType]) -> ColumnReader:
        with as_input_errors(self.path), _open_parquet(self.path) as file:
            from pyarrow import types

            metadata, schema = file.metadata, file.schema_arrow
            sizes = [metadata.row_group(k).num_rows for k in range(metadata.num_row_groups)]
            numeric = types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null
            for name in wanted_arrays:
                dtype, column = schema.field(self._fields[name][0]).type, f"column {safe_text(name)}"
                arrow_type = dtype.value_type if types.is_dictionary(dtype) else dtype
                if not any(test(arrow_type) for test in (*numeric, types.is_string, types.is_large_string)):
                    raise InputError(f"{self.path}: {column} has the type {dtype}; declare it as ignored")
        starts, expected_identity = np.cumsum([0, *sizes]), file_identity(self.path)
        row_bytes = sum(8 if value_type == "numbers" else 64 for value_type in wanted_arrays.values())
        check_fits_in_memory(self.path, max(sizes, default=0) * row_bytes)
        stored = {name: self._fields[name][0] for name in wanted_arrays}
        cached: dict[int, dict[str, NDArray[Any]]] = {}

        def read_columns(names: Sequence[str], rows: IntArray) -> dict[str, NDArray[Any]]:
            """Return values of named columns in given rows (ascending); the last row group is cached."""
            bounds = np.searchsorted(rows, starts)
            blocks = []
            for group in np.flatnonzero(np.diff(bounds)).tolist() or [0]:
                check_unchanged(self.path, expected_identity)
                if group not in cached:
                    cached.clear()
                    with as_input_errors(self.path), _open_parquet(self.path) as file:
                        table = file.read_row_group(group, columns=[*stored.values()], use_threads=False)
                        cached[group] = {name: _to_array(table.column(stored[name])) for name in stored}
                offsets = rows[bounds[group] : bounds[group + 1]] - starts[group]
                blocks.append({name: cached[group][name][offsets] for name in names})
            return {name: np.concatenate([block[name] for block in blocks]) for name in names}

        return ColumnReader(self.path, int(starts[-1]), read_columns)


def _open_parquet(path: Path) -> Any:
    return import_extra("pyarrow.parquet", "parquet").ParquetFile(path, memory_map=False)


def _to_array(column: Any) -> NDArray[Any]:
    import pyarrow as pa

    value_type = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_decimal(value_type) or (pa.types.is_boolean(value_type) and column.null_count):
        value_type = pa.float64()
    return np.asarray(column.cast(value_type).to_numpy(zero_copy_only=False))
