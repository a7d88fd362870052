"""User's files, opened by the suffix of their name."""

import os
from importlib import import_module
from pathlib import Path

from mu2mpi.data.formats.columns import File
from mu2mpi.errors import InputError
from mu2mpi.files import check_readable
from mu2mpi.memory import check_room

FORMATS = {
    ".h5": "Hdf5",
    ".hdf5": "Hdf5",
    ".parquet": "Parquet",
    ".npz": "Npz",
    ".svm": "Svm",
    ".libsvm": "Svm",
    ".csv": "Csv",
}
"""Classes by the suffixes of their files; each is in a module of the same name in small letters."""

SURELY_LARGE, MOST_FOLD = 16 << 20, 250
"""A packed file that says it unpacks to more bytes than this, and more times its size, is refused."""


def open_file(path: Path, dimension: int = 0) -> File:
    """Open a file; one of LIBSVM has at least so many features. A run imports no other format's module."""
    check_readable(path)
    name = FORMATS.get(Path(path.name.lower().removesuffix(".gz")).suffix)
    if name is None:
        raise InputError(f"{path} is no file of samples by its suffix")
    if name in ("Svm", "Csv"):
        _check_size(path)
    found: File = getattr(import_module(f"mu2mpi.data.formats.{name.lower()}"), name)(path, dimension)
    return found


def _check_size(path: Path) -> None:
    """Raise InputError if a text, or by its own account what a packed one holds, is too large to be read."""
    size = os.path.getsize(path)
    if path.suffix.lower() == ".gz" and size > 4:
        with open(path, "rb") as file:
            file.seek(-4, os.SEEK_END)
            unpacked = int.from_bytes(file.read(4), "little")
        if unpacked > max(SURELY_LARGE, MOST_FOLD * size):
            raise InputError(
                f"{path} unpacks to over {MOST_FOLD} times its size; if that is meant, unpack it first"
            )
        size = unpacked
    check_room(path, size)
