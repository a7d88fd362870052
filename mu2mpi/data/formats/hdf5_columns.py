"""Named columns in an HDF5 file: datasets side by side, the fields of one, or features without names."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py

from mu2mpi.data.formats.columns import Apart, Columns, Kind, Numbered, Together
from mu2mpi.data.formats.hdf5 import Joined, Rows, check_texts, read_hdf5
from mu2mpi.data.formats.hdf5_parts import member
from mu2mpi.data.formats.table import OWNERS, USUAL, reading
from mu2mpi.errors import InputError
from mu2mpi.hdf5 import open_to_read

MOST_GROUPS = 16
INDEX = "_i_"  # how the names of what PyTables keeps for itself begin
BLOCKS = "values_block_", "block0_"  # and those of several columns of pandas that lie in one


def hdf5_names(path: Path, beside: bool = False) -> list[str]:
    """Return the names of all columns, or of those that may stand beside features without names."""
    with reading(path):
        found = _layout(path, beside)
        if found is None:
            return Numbered(read_hdf5(path, None, None, True), 0).names
        names = list(found.dtype.names if isinstance(found, h5py.Dataset) else found)
        if any(name.startswith(BLOCKS) for name in names):
            raise InputError(
                f"{path} was written by pandas as blocks, which have no names of columns: give to_hdf "
                "format = 'table' and data_columns = True"
            )
        return names


def hdf5_columns(path: Path, wanted: Mapping[str, Kind], verify: bool, beside: bool = False) -> Columns:
    """Open columns; with `verify`, texts are read once by another process."""
    with reading(path):
        found = _layout(path, beside)
        if found is None:
            return Numbered(read_hdf5(path, None, None, verify), 0)
        fields = isinstance(found, h5py.Dataset)
        rows = {"": Rows(path, found)} if fields else {name: Rows(path, found[name]) for name in wanted}
    if verify:
        check_texts(path, list(rows.values()))
    columns = {name: Joined([column], column.dtype) for name, column in rows.items()}
    return Together(path, columns[""], wanted) if fields else Apart(path, columns)


def _layout(path: Path, beside: bool) -> Any:
    """Return a dataset with fields, datasets by name, or None if features have no names.

    Of what is `beside` these features, it returns the datasets by name.
    """
    if not h5py.is_hdf5(path):
        raise InputError(f"{path} is not an HDF5 file, or its beginning is damaged")
    here: Any = open_to_read(path)
    if _has_features(path, here):
        names = [name for name in here if isinstance(member(path, here, name), h5py.Dataset)]
        return {name: here[name] for name in names} if beside else None
    for _ in range(MOST_GROUPS):
        found = {name: member(path, here, name) for name in here if not name.startswith(INDEX)}
        table = found.get("table", next(iter(found.values())) if len(found) == 1 else None)
        if isinstance(table, h5py.Group):
            here = table
            continue
        if isinstance(table, h5py.Dataset) and table.dtype.names:
            return table
        if found and all(isinstance(one, h5py.Dataset) for one in found.values()):
            return found
        break
    raise InputError(
        f"{path} holds no table: it should have a dataset for each column in one group, a dataset with a "
        "field for each, or features and labels"
    )


def _has_features(path: Path, file: h5py.File) -> bool:
    if OWNERS in file and isinstance(member(path, file, OWNERS), h5py.Group):
        return True
    for name in USUAL["features"]:
        if name in file:
            with suppress(AttributeError):
                return len(member(path, file, name).shape) > 1
    return False
