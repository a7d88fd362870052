"""Samples in an HDF5 file, of which only those rows are read that are asked for."""

import math
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from mu2mpi.data.formats.hdf5_parts import check_written, files_of, member
from mu2mpi.data.formats.table import (
    OWNERS,
    Table,
    check_apart,
    checked_size,
    find_name,
    kernel_type,
    reading,
    without_owner,
)
from mu2mpi.data.telling import DataError
from mu2mpi.errors import InputError
from mu2mpi.files import identity
from mu2mpi.hdf5 import open_to_read
from mu2mpi.memory import check_room

READ_TEXTS = """
import sys, h5py
with h5py.File(sys.argv[1], locking=False) as file:
    for name in sys.argv[2:]:
        for start in range(0, len(file[name]), 1 << 16):
            file[name][start : start + (1 << 16)]
"""

SECONDS, SECONDS_A_ROW = 20.0, 1e-4  # in which texts can surely be read
BLOCK_BYTES = 4 << 20  # about how much is read at once where HDF5 has to find, unpack or convert it


def read_hdf5(path: Path, features: str | None, labels: str | None, verify: bool) -> Table:
    """Open datasets of features, labels and perhaps owners; or those of each owner's group in ``machine``.

    The file stays open. With `verify`, texts are read once by another process: where they are damaged, HDF5
    may do so for ever.
    """
    with reading(path):
        if not h5py.is_hdf5(path):
            raise InputError(f"{path} is not an HDF5 file, or its beginning is damaged")
        file = open_to_read(path)
        owners: Any = member(path, file, OWNERS) if OWNERS in list(file) else None
        by_owner = isinstance(owners, h5py.Group)
        names = list(owners) if by_owner else []
        if not all(isinstance(name, str) for name in names):
            raise InputError(f"{path}: the name of an owner in its group {OWNERS} is not in UTF-8")
        names.sort()
        groups = [member(path, owners, name) for name in names] if by_owner else [file]
        if not groups:
            raise InputError(f"{path}: its group {OWNERS} is empty")
        for group in groups:
            if not isinstance(group, h5py.Group):
                raise DataError(
                    f"{path}: in its group {OWNERS} is what is no group of one owner's features and labels",
                    f"{path}: {group.name} is not a group of one owner's features and labels",
                )
        datasets = [
            [member(path, group, find_name(path, list(group), name, option)) for group in groups]
            for name, option in ((features, "features"), (labels, "labels"))
        ]
        datasets.append([] if by_owner or owners is None else [owners])
        # Equal are those that are one, whatever their names.
        check_apart(path, datasets[0], datasets[1] + datasets[2])
        of_features, of_labels, of_owners = ([Rows(path, dataset) for dataset in of] for of in datasets)
    sizes = [checked_size(path, f.shape, y.shape) for f, y in zip(of_features, of_labels, strict=True)]
    if len({dimension for _, dimension in sizes}) > 1:
        raise InputError(f"{path}: the owners in its group {OWNERS} differ in their number of features")
    for column in of_owners:
        checked_size(path, (sizes[0][0], 1), column.shape, "owners")
    if verify:
        check_texts(path, [*of_labels, *of_owners])
    owners = Joined(of_owners) if of_owners else None
    if by_owner:
        owners = Names(names, [samples for samples, _ in sizes])
    feature_type = np.result_type(*{kernel_type(path, part.dtype) for part in of_features})
    return Table(path, Joined(of_features, feature_type), Joined(of_labels), owners)


class Joined:
    """A column in parts, one after the other, of which some rows, ascending, can be read as one array."""

    def __init__(self, parts: "list[Rows]", dtype: np.dtype[Any] | None = None) -> None:
        self._parts, self.dtype = parts, dtype or np.result_type(*{part.dtype for part in parts})
        self._starts = np.cumsum([0, *(part.shape[0] for part in parts)])
        self.shape = int(self._starts[-1]), math.prod(parts[0].shape[1:])

    def __getitem__(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        found = np.empty((len(rows), self.shape[1]), self.dtype)
        bounds = np.searchsorted(rows, self._starts)
        for part in np.flatnonzero(np.diff(bounds)).tolist():
            place = slice(bounds[part], bounds[part + 1])
            self._parts[part].read(rows[place] - self._starts[part], found[place])
        return found


class Names:
    """The names of owners who have a group each, as a column of all their samples."""

    def __init__(self, names: list[str], samples: list[int]) -> None:
        self._names, self._ends = np.array(names), np.cumsum(samples)
        self.shape = (int(self._ends[-1]),)

    def __getitem__(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        return self._names[np.searchsorted(self._ends, rows, side="right")]


def check_texts(path: Path, columns: "list[Rows]") -> None:
    """Have another process read texts of any length, which could hang or crash this one."""
    columns = [column for column in columns if column.dtype.hasobject]
    if not columns:
        return
    seconds = SECONDS + SECONDS_A_ROW * sum(column.shape[0] for column in columns)
    command = [sys.executable, "-c", READ_TEXTS, str(path), *(column.name for column in columns)]
    # Ctrl-C is for us alone: the child that it ended would look like damage.
    options: Any = {"capture_output": True, "timeout": seconds, "start_new_session": True}
    try:
        code = subprocess.run(command, **options).returncode
    except subprocess.TimeoutExpired:
        code = -1
    except OSError:
        # Where no process can be started, the texts are read all the same.
        return
    # What else may be wrong is said better where they are read.
    if code < 0:
        raise InputError(f"{path} is damaged: HDF5 does not come to the end of its texts")


class Rows:
    """The rows of a dataset of numbers or text, the latter as objects.

    Rows that lie in the file as they do in memory are read one by one where they lie, which is quick even if
    they are few and far between. Others are read in blocks.
    """

    def __init__(self, path: Path, dataset: Any) -> None:
        if not isinstance(dataset, h5py.Dataset):
            raise InputError(f"{path}: {without_owner(dataset.name)} is not a dataset")
        is_text = h5py.check_string_dtype(dataset.dtype) is not None
        fits = is_text or dataset.dtype.names or dataset.dtype.kind in "biuf"
        if not dataset.shape or not fits:
            what = f"the type {dataset.dtype} and the shape {dataset.shape}"
            raise InputError(
                f"{path}: {without_owner(dataset.name)} has {what}; it should have rows of numbers or text"
            )
        check_written(path, dataset)
        self._path = path
        self._files = {file: identity(Path(file)) for file in files_of(dataset)}
        self.name, self.shape = dataset.name, dataset.shape
        self._values = dataset.asstr() if is_text else dataset
        self.dtype = np.dtype(object) if is_text else dataset.dtype
        self._width = int(np.prod(dataset.shape[1:], dtype=float))
        self._row_bytes = max(1, self._width * dataset.dtype.itemsize)
        self._offset = self._find(dataset)
        chunk = dataset.chunks[0] if dataset.chunks else 1
        self._at_once = chunk * max(1, BLOCK_BYTES // (chunk * self._row_bytes))
        check_room(path, min(self._at_once, max(1, self.shape[0])) * self._row_bytes)

    def _find(self, dataset: h5py.Dataset) -> int | None:
        """Return where in the file the rows lie, if they lie there as they are in memory."""
        here = len(self._files) == 1 and os.path.samefile(dataset.file.filename, self._path)
        moved = dataset.chunks or dataset.is_virtual or dataset.file.userblock_size
        plain = self.dtype.isnative and self.dtype.kind in "iuf"
        # What HDF5 stores need not look like the type of numpy to which it is converted.
        same = plain and dataset.id.get_type().equal(h5py.h5t.py_create(self.dtype))
        offset: int | None = dataset.id.get_offset() if here and same and not moved else None
        return offset

    def read(self, rows: NDArray[np.int64], into: NDArray[Any]) -> None:
        """Read some rows, ascending, into an array of shape (n, width), not to be used after an error."""
        with reading(self._path):
            self._check_unchanged()
            if self._offset is None:
                self._read_blocks(rows, into)
            else:
                self._read_places(rows, into, self._offset)
            self._check_unchanged()

    def _check_unchanged(self) -> None:
        for file, state in self._files.items():
            if identity(Path(file)) != state:
                raise InputError(
                    f"{file} has changed while it was in use. Nothing was taken from it since; what a run "
                    "has sent so far came from the file as it was. Put it back and repeat the command to go "
                    "on; what was spent by the last checkpoint, mu2mpi show says of the output"
                )

    def _read_places(self, rows: NDArray[np.int64], into: NDArray[Any], origin: int) -> None:
        starts = np.flatnonzero(np.diff(rows, prepend=-2) != 1)
        raw = into if into.dtype == self.dtype else np.empty(into.shape, self.dtype)
        memory, width = raw.reshape(-1).view(np.uint8).data, self._row_bytes
        with open(self._path, "rb", buffering=0) as file:
            for start, stop in pairwise([*starts, len(rows)]):
                piece = memory[start * width : stop * width]
                if os.preadv(file.fileno(), [piece], origin + int(rows[start]) * width) != len(piece):
                    raise InputError(f"{self._path} is truncated")
        if raw is not into:
            into[...] = raw

    def _read_blocks(self, rows: NDArray[np.int64], into: NDArray[Any]) -> None:
        blocks = rows // self._at_once
        starts = np.flatnonzero(np.diff(blocks, prepend=-1))
        for start, stop in pairwise([*starts, len(rows)]):
            first, last = int(rows[start]), int(rows[stop - 1])
            block = self._values[first : last + 1].reshape(last + 1 - first, self._width)
            into[start:stop] = block[rows[start:stop] - first]
