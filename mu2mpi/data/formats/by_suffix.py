"""Open a user's file by the suffix of its name."""

from collections.abc import Collection, Mapping
from pathlib import Path

from mu2mpi.data.formats.columns import Columns, Kind, Numbered
from mu2mpi.data.formats.table import Table
from mu2mpi.data.formats.whole import (
    csv_columns,
    csv_names,
    npz_columns,
    npz_names,
    read_csv,
    read_npz,
    read_svm,
)
from mu2mpi.errors import InputError
from mu2mpi.files import check_readable


def suffix_of(path: Path) -> str:
    """Return the suffix that tells the format of a file, which can be read, be it packed or not."""
    check_readable(path)
    return Path(path.name.lower().removesuffix(".gz")).suffix


def open_table(
    path: Path, features: str | None, labels: str | None, verify: bool, dimension: int | None
) -> Table:
    """Open features and labels, by their names if they have any; a sparse file may lack the last features."""
    match suffix_of(path):
        case ".csv":
            return read_csv(path, features, labels)
        case ".npz":
            return read_npz(path, features, labels)
        case ".svm" | ".libsvm" if features is None and labels is None:
            return read_svm(path, dimension)
        case ".svm" | ".libsvm":
            raise InputError(f"{path} has no names of features and labels; leave out --features and --labels")
        case ".parquet":
            raise InputError(
                f"{path} has columns, which --schema declares: fill in what is printed by mu2mpi data {path} "
                "--schema-template"
            )
    from mu2mpi.data.formats.hdf5 import read_hdf5

    return read_hdf5(path, features, labels, verify)


def column_names(path: Path, declared: Collection[str] = (), beside: bool = False) -> list[str]:
    """Return the names of all columns of a file; a sparse one may lack the last that are declared.

    Where features have no names, these are their numbers; or what stands `beside` them by its own name.
    """
    match suffix_of(path):
        case ".csv":
            return csv_names(path)
        case ".npz":
            return npz_names(path, beside)
        case ".svm" | ".libsvm":
            return _sparse(path, declared).names
        case ".parquet":
            from mu2mpi.data.formats.parquet import parquet_names

            return parquet_names(path)
    from mu2mpi.data.formats.hdf5_columns import hdf5_names

    return hdf5_names(path, beside)


def open_columns(path: Path, wanted: Mapping[str, Kind], verify: bool, beside: bool = False) -> Columns:
    """Open columns of a file, which it must have, by names as of `column_names`."""
    match suffix_of(path):
        case ".csv":
            return csv_columns(path, wanted)
        case ".npz":
            return npz_columns(path, wanted, beside)
        case ".svm" | ".libsvm":
            return _sparse(path, wanted)
        case ".parquet":
            from mu2mpi.data.formats.parquet import ParquetColumns

            return ParquetColumns(path, wanted)
    from mu2mpi.data.formats.hdf5_columns import hdf5_columns

    return hdf5_columns(path, wanted, verify, beside)


def _sparse(path: Path, names: Collection[str]) -> Numbered:
    table = read_svm(path, None)
    most = max((int(name) for name in names if name.isascii() and name.isdigit()), default=0)
    return Numbered(table if table.dimension >= most else read_svm(path, most), 1)
