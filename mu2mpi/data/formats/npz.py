"""Samples in an archive of numpy's, read whole."""

import math
import zipfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mu2mpi.data.formats.table import FEATURES, LABELS, OWNERS, ArrayTable, find_name, reading
from mu2mpi.errors import InputError

__all__ = ["read_npz"]


def read_npz(path: Path, features: str | None, labels: str | None) -> ArrayTable:
    """Read an archive.

    Parameters
    ----------
    path : Path
        The file.
    features, labels : str, optional
        Names of the arrays; by default the usual ones. One of the name ``machine`` holds owners.

    Raises
    ------
    InputError
        If it is no archive or damaged, or does not hold what is asked for.
    """
    with reading(path), zipfile.ZipFile(path) as archive:
        there = [name.removesuffix(".npy") for name in archive.namelist()]
        of_features = find_name(path, there, features, FEATURES, "features")
        of_labels = find_name(path, there, labels, LABELS, "labels")
        owners = _array(path, archive, OWNERS) if OWNERS in there else None
        return ArrayTable(path, _array(path, archive, of_features), _array(path, archive, of_labels), owners)


def _array(path: Path, archive: zipfile.ZipFile, name: str) -> NDArray[np.generic]:
    member = archive.getinfo(f"{name}.npy")
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        if read_header is None:
            raise InputError(f"{path}: {name} has version {version} of numpy's format; only 1 and 2 are read")
        shape, in_columns, dtype = read_header(file)
        if dtype.hasobject:
            raise InputError(f"{path}: {name} holds Python objects; store numbers or text")
        # Before memory is taken for it: a damaged header may promise anything.
        size = math.prod(shape) * dtype.itemsize
        if size != member.file_size - file.tell():
            raise InputError(f"{path}: {name} is not as large as its shape {shape} says")
        values = np.frombuffer(file.read(), dtype)
    return values.reshape(shape, order="F" if in_columns else "C")
