"""Columns of Parquet files, of which those columns and groups of rows are read that are needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mu2mpi.core.errors import InputError
from mu2mpi.core.files import identity
from mu2mpi.core.lazy import NDArray, np
from mu2mpi.core.memory import check_room
from mu2mpi.core.registry import register
from mu2mpi.data.formats.format import Columns, File, Kind, Table
from mu2mpi.data.redaction import check_unchanged, reading, shown


@register
class Parquet(File):
    """A Parquet file, whose columns a schema declares."""

    name, suffixes = "parquet", (".parquet",)
    is_table = True

    def __init__(self, path: Path, dimension: int = 0) -> None:
        super().__init__(path)
        with reading(path), _opened(path) as file:
            self.names = list(file.schema_arrow.names)

    def arrays(self, wanted: Mapping[str, Kind]) -> dict[str, Any]:
        columns = self.columns(wanted)
        return columns.read(list(wanted), np.arange(columns.samples))

    def table(self, features: str | None, labels: str | None) -> Table:
        raise InputError(f"{self.path} needs a --schema; mu2mpi data --schema-template prints one to fill in")

    def columns(self, wanted: Mapping[str, Kind]) -> Columns:
        with reading(self.path), _opened(self.path) as file:
            from pyarrow import types

            facts, schema = file.metadata, file.schema_arrow
            sizes = [facts.row_group(k).num_rows for k in range(facts.num_row_groups)]
            numbers = types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null
            for name in wanted:
                kind = schema.field(name).type
                value = kind.value_type if types.is_dictionary(kind) else kind
                if not any(fits(value) for fits in (*numbers, types.is_string, types.is_large_string)):
                    raise InputError(
                        f"{self.path}: column {shown(name)} has the type {kind}; declare it as ignored"
                    )
        starts, state = np.cumsum([0, *sizes]), identity(self.path)
        row_bytes = sum(8 if kind == "numbers" else 64 for kind in wanted.values())
        check_room(self.path, max(sizes, default=0) * row_bytes)
        held: dict[int, dict[str, NDArray[Any]]] = {}

        def read(names: Sequence[str], rows: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
            """Return some rows, ascending, of columns, from one group after the other."""
            bounds = np.searchsorted(rows, starts)
            parts = []
            for group in np.flatnonzero(np.diff(bounds)).tolist() or [0]:
                check_unchanged(self.path, state)
                if group not in held:
                    held.clear()
                    with reading(self.path), _opened(self.path) as file:
                        table = file.read_row_group(group, columns=list(wanted), use_threads=False)
                        held[group] = {name: _array(table.column(name)) for name in wanted}
                places = rows[bounds[group] : bounds[group + 1]] - starts[group]
                parts.append({name: held[group][name][places] for name in names})
            return {name: np.concatenate([part[name] for part in parts]) for name in names}

        return Columns(self.path, int(starts[-1]), read)


def _opened(path: Path) -> Any:
    try:
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise InputError(f'{path} needs pyarrow: pip install "mu2mpi[parquet]"') from None
    return ParquetFile(path, memory_map=False)


def _array(column: Any) -> NDArray[Any]:
    """Return a column as numbers, NaN where there is none, or as objects: texts, or None."""
    import pyarrow as pa

    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_decimal(kind) or (pa.types.is_boolean(kind) and column.null_count):
        kind = pa.float64()
    values: NDArray[Any] = column.cast(kind).to_numpy(zero_copy_only=False)
    return values
