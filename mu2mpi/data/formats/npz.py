"""Samples in an archive of numpy's, read whole."""

import math
import zipfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mu2mpi.data.formats.table import OWNERS, ArrayTable, find_name, reading
from mu2mpi.errors import InputError

__all__ = ["read_npz"]


def read_npz(path: Path, features: str | None, labels: str | None) -> ArrayTable:
    """Read arrays of these names, or of the usual ones; one of the name ``machine`` holds owners."""
    with reading(path), zipfile.ZipFile(path) as archive:
        there = [name.removesuffix(".npy") for name in archive.namelist()]
        names = [
            find_name(path, there, features, "features"),
            find_name(path, there, labels, "labels"),
            *([OWNERS] if OWNERS in there else []),
        ]
        return ArrayTable(path, *(_array(path, archive, name) for name in names))


def _array(path: Path, archive: zipfile.ZipFile, name: str) -> NDArray[np.generic]:
    member = archive.getinfo(f"{name}.npy")
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        read_header = getattr(np.lib.format, "read_array_header_{}_{}".format(*version), None)
        if read_header is None:
            raise InputError(f"{path}: {name} has version {version} of numpy's format; only 1 and 2 are read")
        shape, in_columns, dtype = read_header(file)
        if dtype.hasobject:
            raise InputError(f"{path}: {name} holds Python objects; store numbers or text")
        # Before memory is taken for it: a damaged header may promise anything.
        if math.prod(shape) * dtype.itemsize != member.file_size - file.tell():
            raise InputError(f"{path}: {name} is not as large as its shape {shape} says")
        values = np.frombuffer(file.read(), dtype)
    return values.reshape(shape, order="F" if in_columns else "C")
