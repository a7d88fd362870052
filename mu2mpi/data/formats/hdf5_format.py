"""File format HDF5, of which only the needed rows are read."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from mu2mpi.core.arrays import IntArray
from mu2mpi.core.errors import InputError
from mu2mpi.core.files import file_identity
from mu2mpi.core.lazy import NDArray, h5py, np
from mu2mpi.core.memory import check_fits_in_memory
from mu2mpi.core.registry import register
from mu2mpi.data.formats.format import DEFAULT_ARRAY_NAMES, OWNER_COLUMN, DataFile, ValueType
from mu2mpi.data.redaction import as_input_errors, check_unchanged, safe_text

HDF5_BLOCK_BYTES = 4 << 20  # approximate size of a read of rows that HDF5 must locate, decompress or convert


@register
class Hdf5File(DataFile):
    """HDF5 file with datasets in one group."""

    name, suffixes = "hdf5", (".h5", ".hdf5")

    def __init__(self, path: Path, dimension: int = 0) -> None:
        from mu2mpi.core.hdf5 import open_for_reading

        super().__init__(path)
        with as_input_errors(path):
            file: Any = open_for_reading(path)
            # HDF5 would open the target of an external link, even a pipe.
            if file.id.links.visit(lambda _, link: link.type == h5py.h5l.TYPE_EXTERNAL or None, info=True):
                raise InputError(f"{path} has links to other files; copy their targets into it")
            if isinstance(file.get(OWNER_COLUMN), h5py.Group):
                advice = "Write a dataset with the owner of each row"
                raise InputError(f"{path}: its {OWNER_COLUMN} is a group. {advice}")
            self._table_group = _find_table_group(file)
            self.array_names = list(self._table_group)

    def arrays(self, wanted_arrays: Mapping[str, ValueType]) -> dict[str, Any]:
        with as_input_errors(self.path):
            return {name: DatasetRows(self.path, name, self._table_group[name]) for name in wanted_arrays}


def _find_table_group(group: Any) -> Any:
    while not any(name in group for name in DEFAULT_ARRAY_NAMES["features"]):
        children = [group[name] for name in group if not name.startswith("_")]  # PyTables has indexes there
        if len(children) != 1 or not isinstance(children[0], h5py.Group):
            break
        group = children[0]
    return group


class DatasetRows:
    """Rows of an HDF5 dataset, indexed by ascending row numbers; read from file offsets if possible."""

    def __init__(self, path: Path, name: str, dataset: Any) -> None:
        if not isinstance(dataset, h5py.Dataset):
            raise InputError(f"{path}: {safe_text(name)} is not a dataset")
        is_text = h5py.check_string_dtype(dataset.dtype) is not None
        if not dataset.shape or not (is_text or dataset.dtype.kind in "biuf"):
            layout = f"the type {dataset.dtype} and the shape {dataset.shape}"
            raise InputError(f"{path}: {safe_text(name)} must have rows of numbers or text, got {layout}")
        if dataset.is_virtual or dataset.external:
            raise InputError(f"{path}: {safe_text(name)} has its values elsewhere; copy them into a dataset")
        stored, needed = dataset.id.get_storage_size(), dataset.size * dataset.id.get_type().get_size()
        if dataset.chunks:
            grid = (-(-n // chunk) for n, chunk in zip(dataset.shape, dataset.chunks, strict=True))
            stored, needed = dataset.id.get_num_chunks(), math.prod(grid)
        if stored < needed:  # HDF5 would return zeros.
            raise InputError(f"{path}: only {stored / needed:.0%} of {safe_text(name)} was ever written")
        self._path, self._identity, self.shape = path, file_identity(path), dataset.shape
        self._hdf5_dataset = dataset.asstr() if is_text else dataset
        self.dtype = np.dtype(object) if is_text else dataset.dtype
        self._values_per_row = math.prod(dataset.shape[1:])
        self._row_bytes = max(1, self._values_per_row * dataset.dtype.itemsize)
        is_native = self.dtype.isnative and self.dtype.kind in "iuf" and not dataset.file.userblock_size
        is_same = is_native and dataset.id.get_type().equal(h5py.h5t.py_create(self.dtype))
        self._byte_offset: int | None = dataset.id.get_offset() if is_same and not dataset.chunks else None
        chunk = dataset.chunks[0] if dataset.chunks else 1
        self._rows_per_block = chunk * max(1, HDF5_BLOCK_BYTES // (chunk * self._row_bytes))
        check_fits_in_memory(path, min(self._rows_per_block, max(1, self.shape[0])) * self._row_bytes)

    def __getitem__(self, rows: IntArray) -> NDArray[Any]:
        out = np.empty((len(rows), self._values_per_row), self.dtype)
        with as_input_errors(self._path):
            check_unchanged(self._path, self._identity)
            if self._byte_offset is None:
                self._read_blocks(rows, out)
            else:
                self._read_contiguous(rows, out, self._byte_offset)
            check_unchanged(self._path, self._identity)
        return out

    def _read_contiguous(self, rows: IntArray, out: NDArray[Any], byte_offset: int) -> None:
        starts = np.flatnonzero(np.diff(rows, prepend=-2) != 1)
        memory, width = out.reshape(-1).view(np.uint8).data, self._row_bytes
        with open(self._path, "rb", buffering=0) as file:
            for start, stop in pairwise([*starts, len(rows)]):
                piece = memory[start * width : stop * width]
                if os.preadv(file.fileno(), [piece], byte_offset + int(rows[start]) * width) != len(piece):
                    raise InputError(f"{self._path} is truncated")

    def _read_blocks(self, rows: IntArray, out: NDArray[Any]) -> None:
        starts = np.flatnonzero(np.diff(rows // self._rows_per_block, prepend=-1))
        for start, stop in pairwise([*starts, len(rows)]):
            first, last = int(rows[start]), int(rows[stop - 1])
            block = self._hdf5_dataset[first : last + 1].reshape(last + 1 - first, self._values_per_row)
            out[start:stop] = block[rows[start:stop] - first]
