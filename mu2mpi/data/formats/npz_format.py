"""File format of NumPy archives (.npz)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mu2mpi.core.lazy import NDArray, np
from mu2mpi.core.memory import check_fits_in_memory
from mu2mpi.core.registry import register
from mu2mpi.data.formats.format import DataFile, ValueType
from mu2mpi.data.redaction import as_input_errors


@register
class NpzFile(DataFile):
    """NumPy archive written by numpy.savez; each array is read into memory at its first use."""

    name, suffixes = "npz", (".npz",)

    def __init__(self, path: Path, dimension: int = 0) -> None:
        super().__init__(path)
        self._loaded_arrays: dict[str, NDArray[Any]] = {}
        with as_input_errors(path), open(path, "rb") as file:
            self.array_names = list(np.load(file).files)

    def arrays(self, wanted_arrays: Mapping[str, ValueType]) -> dict[str, NDArray[Any]]:
        new = [name for name in wanted_arrays if name not in self._loaded_arrays]
        with as_input_errors(self.path), open(self.path, "rb") as file:
            archive: Any = np.load(file)
            check_fits_in_memory(self.path, sum(archive.zip.getinfo(f"{name}.npy").file_size for name in new))
            self._loaded_arrays |= {name: archive[name] for name in new}
        return {name: self._loaded_arrays[name] for name in wanted_arrays}
