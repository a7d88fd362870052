"""File format Parquet, of which only the needed columns and row groups are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mu2mpi.core.arrays import IntArray
from mu2mpi.core.errors import InputError
from mu2mpi.core.files import file_identity
from mu2mpi.core.lazy import NDArray, np
from mu2mpi.core.memory import check_fits_in_memory
from mu2mpi.core.registry import register
from mu2mpi.data.formats.format import ColumnReader, DataFile, Table, ValueKind
from mu2mpi.data.redaction import check_unchanged, printable, read_errors


@register
class Parquet(DataFile):
    """Parquet file whose columns are declared by a schema."""

    name, suffixes = "parquet", (".parquet",)
    is_table = True

    def __init__(self, path: Path, dimension: int = 0) -> None:
        super().__init__(path)
        with read_errors(path), _open_parquet(path) as file:
            self.names = list(file.schema_arrow.names)

    def arrays(self, wanted: Mapping[str, ValueKind]) -> dict[str, Any]:
        reader = self.column_reader(wanted)
        return reader.read(list(wanted), np.arange(reader.samples))

    def table(self, features: str | None, labels: str | None) -> Table:
        raise InputError(f"{self.path} needs a --schema; mu2mpi data --schema-template prints one to fill in")

    def column_reader(self, wanted: Mapping[str, ValueKind]) -> ColumnReader:
        with read_errors(self.path), _open_parquet(self.path) as file:
            from pyarrow import types

            metadata, schema = file.metadata, file.schema_arrow
            sizes = [metadata.row_group(k).num_rows for k in range(metadata.num_row_groups)]
            numeric = types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null
            for name in wanted:
                dtype, column = schema.field(name).type, f"column {printable(name)}"
                value_type = dtype.value_type if types.is_dictionary(dtype) else dtype
                if not any(test(value_type) for test in (*numeric, types.is_string, types.is_large_string)):
                    raise InputError(f"{self.path}: {column} has the type {dtype}; declare it as ignored")
        starts, expected = np.cumsum([0, *sizes]), file_identity(self.path)
        row_bytes = sum(8 if kind == "numbers" else 64 for kind in wanted.values())
        check_fits_in_memory(self.path, max(sizes, default=0) * row_bytes)
        cached: dict[int, dict[str, NDArray[Any]]] = {}

        def read(names: Sequence[str], rows: IntArray) -> dict[str, NDArray[Any]]:
            """Return values of named columns in given rows (ascending); the last row group is cached."""
            bounds = np.searchsorted(rows, starts)
            blocks = []
            for group in np.flatnonzero(np.diff(bounds)).tolist() or [0]:
                check_unchanged(self.path, expected)
                if group not in cached:
                    cached.clear()
                    with read_errors(self.path), _open_parquet(self.path) as file:
                        table = file.read_row_group(group, columns=list(wanted), use_threads=False)
                        cached[group] = {name: _to_array(table.column(name)) for name in wanted}
                offsets = rows[bounds[group] : bounds[group + 1]] - starts[group]
                blocks.append({name: cached[group][name][offsets] for name in names})
            return {name: np.concatenate([block[name] for block in blocks]) for name in names}

        return ColumnReader(self.path, int(starts[-1]), read)


def _open_parquet(path: Path) -> Any:
    try:
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise InputError(f'{path} needs pyarrow: pip install "mu2mpi[parquet]"') from None
    return ParquetFile(path, memory_map=False)


def _to_array(column: Any) -> NDArray[Any]:
    import pyarrow as pa

    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_decimal(kind) or (pa.types.is_boolean(kind) and column.null_count):
        kind = pa.float64()
    values: NDArray[Any] = column.cast(kind).to_numpy(zero_copy_only=False)
    return values
