"""File format Parquet, of which only the needed columns are read into memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mu2mpi.core.errors import InputError, import_extra
from mu2mpi.core.lazy import NDArray, np
from mu2mpi.core.memory import check_fits_in_memory
from mu2mpi.core.registry import register
from mu2mpi.data.formats.format import DataFile, Table, ValueType
from mu2mpi.data.redaction import as_input_errors


@register
class ParquetFile(DataFile):
    """Parquet file whose columns are declared by a schema."""

    name, suffixes = "parquet", (".parquet",)
    is_table = True

    def __init__(self, path: Path, dimension: int = 0) -> None:
        super().__init__(path)
        with as_input_errors(path):
            metadata = _pyarrow_parquet().read_metadata(path)
            self.array_names, self._rows = metadata.schema.to_arrow_schema().names, metadata.num_rows

    def table(self, features: str | None, labels: str | None) -> Table:
        raise InputError(f"{self.path} needs a --schema; `mu2mpi init {self.path}` writes one to fill in")

    def arrays(self, wanted_arrays: Mapping[str, ValueType]) -> dict[str, NDArray[Any]]:
        row_bytes = sum(8 if value_type == "numbers" else 64 for value_type in wanted_arrays.values())
        check_fits_in_memory(self.path, self._rows * row_bytes)
        with as_input_errors(self.path):
            file = _pyarrow_parquet().ParquetFile(self.path, memory_map=False)
            table = file.read([*wanted_arrays], use_threads=False)
            return {name: _to_array(table.column(name)) for name in wanted_arrays}


def _pyarrow_parquet() -> Any:
    return import_extra("pyarrow.parquet", "parquet")


def _to_array(column: Any) -> NDArray[Any]:
    import pyarrow as pa

    value_type = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_decimal(value_type) or (pa.types.is_boolean(value_type) and column.null_count):
        value_type = pa.float64()
    return np.asarray(column.cast(value_type).to_numpy(zero_copy_only=False))
