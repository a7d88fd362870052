"""Formats of files, which are imported only where they are used."""

from pathlib import Path

from mu2mpi.data.formats.table import Table
from mu2mpi.errors import InputError


def open_table(
    path: Path, features: str | None, labels: str | None, verify: bool, dimension: int | None = None
) -> Table:
    """Open a file by its suffix; None stands for the usual names, and for what dimension a sparse file has.

    With `verify`, damage that could hang a process is looked for.
    """
    suffix = Path(path.name.lower().removesuffix(".gz")).suffix
    if suffix not in (".csv", ".npz", ".svm", ".libsvm"):
        from mu2mpi.data.formats.hdf5 import Hdf5Table

        return Hdf5Table(path, features, labels, verify)
    from mu2mpi.data.formats.whole import read_csv, read_npz, read_svm

    if suffix in (".csv", ".npz"):
        return (read_csv if suffix == ".csv" else read_npz)(path, features, labels)
    if features is not None or labels is not None:
        raise InputError(f"{path} has no names of features and labels; leave out --features and --labels")
    return read_svm(path, dimension)
