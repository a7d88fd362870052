"""HDF5 files, of which only those rows are read that are asked for."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from mu2mpi.core.errors import InputError
from mu2mpi.core.files import identity
from mu2mpi.core.lazy import NDArray, h5py, np
from mu2mpi.core.memory import check_room
from mu2mpi.core.registry import register
from mu2mpi.data.formats.format import OWNERS, USUAL, File, Kind
from mu2mpi.data.redaction import check_unchanged, reading, shown

BLOCK_BYTES = 4 << 20  # about how much is read at once where HDF5 has to find, unpack or convert it


@register
class Hdf5(File):
    """Datasets of one group, or of the group that each owner has in ``machine``; the file stays open."""

    name, suffixes = "hdf5", (".h5", ".hdf5")

    def __init__(self, path: Path, dimension: int = 0) -> None:
        from mu2mpi.core.hdf5 import open_to_read

        super().__init__(path)
        with reading(path):
            file: Any = open_to_read(path)
            # HDF5 would open whatever such a link names, be it a pipe.
            if file.id.links.visit(lambda _, link: link.type == h5py.h5l.TYPE_EXTERNAL or None, info=True):
                raise InputError(f"{path} has links to other files: copy what they name into it")
            owners: Any = file.get(OWNERS)
            self._owners = sorted(owners) if isinstance(owners, h5py.Group) else None
            if self._owners is None:
                self._groups = [_innermost(file)]
                self.names = [name for name in self._groups[0] if not name.startswith("_i_")]
                return
            self._groups = [owners[name] for name in self._owners]
        if not self._groups or not all(isinstance(group, h5py.Group) for group in self._groups):
            raise InputError(f"{path}: its group {OWNERS} should have a group for each owner")
        self.names = [*self._groups[0], OWNERS]

    def arrays(self, wanted: Mapping[str, Kind]) -> dict[str, Any]:
        owners = self._owners
        names = [name for name in wanted if owners is None or name != OWNERS]
        with reading(self.path):
            parts = {name: [Rows(self.path, name, group[name]) for group in self._groups] for name in names}
        if owners is None:
            return {name: of[0] for name, of in parts.items()}
        lengths = {tuple(part.shape[0] for part in of) for of in parts.values()}
        if len(lengths) > 1:
            raise InputError(f"{self.path}: an owner has more or fewer labels than rows of features")
        found: dict[str, list[Any]] = {**parts}
        if OWNERS in wanted:
            counts = zip(owners, lengths.pop(), strict=True)
            found[OWNERS] = [np.broadcast_to(np.array([[name]]), (count, 1)) for name, count in counts]
        return {name: Joined(self.path, of) for name, of in found.items()}


def _innermost(group: Any) -> Any:
    """Return the group of a table, perhaps in others, as PyTables and pandas write it."""
    while not any(name in group for name in USUAL["features"]):
        inner = [group[name] for name in group if not name.startswith("_i_")]
        if len(inner) != 1 or not isinstance(inner[0], h5py.Group):
            break
        group = inner[0]
    return group


class Joined:
    """A column in parts, one after the other, of which some rows, ascending, can be read as one array."""

    def __init__(self, path: Path, parts: list[Any]) -> None:
        self._parts, self.dtype = parts, np.result_type(*{part.dtype for part in parts})
        self._bounds = np.cumsum([0, *(part.shape[0] for part in parts)])
        if len({math.prod(part.shape[1:]) for part in parts}) > 1:
            raise InputError(f"{path}: the owners in its group {OWNERS} differ in their number of features")
        self.shape = int(self._bounds[-1]), *parts[0].shape[1:]

    def __getitem__(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        bounds = np.searchsorted(rows, self._bounds)
        blocks = [np.empty((0, math.prod(self.shape[1:])), self.dtype)]
        for k in np.flatnonzero(np.diff(bounds)).tolist():
            blocks.append(self._parts[k][rows[bounds[k] : bounds[k + 1]] - self._bounds[k]])
        return np.concatenate(blocks, dtype=self.dtype)


class Rows:
    """The rows of a dataset of numbers or text, the latter as objects: ``rows[ascending numbers]``.

    Rows that lie in the file as they do in memory are read one by one where they lie, which is quick even if
    they are few and far between. Others are read in blocks.
    """

    def __init__(self, path: Path, name: str, dataset: Any) -> None:
        if not isinstance(dataset, h5py.Dataset):
            raise InputError(f"{path}: {shown(name)} is not a dataset")
        is_text = h5py.check_string_dtype(dataset.dtype) is not None
        if not dataset.shape or not (is_text or dataset.dtype.names or dataset.dtype.kind in "biuf"):
            what = f"the type {dataset.dtype} and the shape {dataset.shape}"
            raise InputError(f"{path}: {shown(name)} has {what}; it should have rows of numbers or text")
        if dataset.is_virtual or dataset.external:
            raise InputError(f"{path}: the values of {shown(name)} lie elsewhere; copy them into a dataset")
        there, needed = dataset.id.get_storage_size(), dataset.size * dataset.id.get_type().get_size()
        if dataset.chunks:
            grid = (-(-n // chunk) for n, chunk in zip(dataset.shape, dataset.chunks, strict=True))
            there, needed = dataset.id.get_num_chunks(), math.prod(grid)
        # HDF5 gives zeros for what was never written.
        if there < needed:
            raise InputError(f"{path}: of {shown(name)}, only {there / needed:.0%} were ever written")
        self._path, self._state, self.shape = path, identity(path), dataset.shape
        self._values = dataset.asstr() if is_text else dataset
        self.dtype = np.dtype(object) if is_text else dataset.dtype
        self._width = math.prod(dataset.shape[1:])
        self._row_bytes = max(1, self._width * dataset.dtype.itemsize)
        # What HDF5 stores need not look like the type of numpy to which it is converted.
        plain = self.dtype.isnative and self.dtype.kind in "iuf" and not dataset.file.userblock_size
        same = plain and dataset.id.get_type().equal(h5py.h5t.py_create(self.dtype))
        self._offset: int | None = dataset.id.get_offset() if same and not dataset.chunks else None
        chunk = dataset.chunks[0] if dataset.chunks else 1
        self._at_once = chunk * max(1, BLOCK_BYTES // (chunk * self._row_bytes))
        check_room(path, min(self._at_once, max(1, self.shape[0])) * self._row_bytes)

    def __getitem__(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        found = np.empty((len(rows), self._width), self.dtype)
        with reading(self._path):
            check_unchanged(self._path, self._state)
            if self._offset is None:
                self._read_blocks(rows, found)
            else:
                self._read_places(rows, found, self._offset)
            check_unchanged(self._path, self._state)
        return found

    def _read_places(self, rows: NDArray[np.int64], into: NDArray[Any], origin: int) -> None:
        starts = np.flatnonzero(np.diff(rows, prepend=-2) != 1)
        memory, width = into.reshape(-1).view(np.uint8).data, self._row_bytes
        with open(self._path, "rb", buffering=0) as file:
            for start, stop in pairwise([*starts, len(rows)]):
                piece = memory[start * width : stop * width]
                if os.preadv(file.fileno(), [piece], origin + int(rows[start]) * width) != len(piece):
                    raise InputError(f"{self._path} is truncated")

    def _read_blocks(self, rows: NDArray[np.int64], into: NDArray[Any]) -> None:
        starts = np.flatnonzero(np.diff(rows // self._at_once, prepend=-1))
        for start, stop in pairwise([*starts, len(rows)]):
            first, last = int(rows[start]), int(rows[stop - 1])
            block = self._values[first : last + 1].reshape(last + 1 - first, self._width)
            into[start:stop] = block[rows[start:stop] - first]
