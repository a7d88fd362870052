"""File format of NumPy archives (.npz)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mu2mpi.core.lazy import NDArray, np
from mu2mpi.core.memory import check_fits_in_memory
from mu2mpi.core.registry import register
from mu2mpi.data.formats.format import DataFile, ValueKind
from mu2mpi.data.redaction import read_errors


@register
class Npz(DataFile):
    """NumPy archive written by numpy.savez; each array is read into memory at its first use."""

    name, suffixes = "npz", (".npz",)

    def __init__(self, path: Path, dimension: int = 0) -> None:
        super().__init__(path)
        self._loaded: dict[str, NDArray[Any]] = {}
        with read_errors(path), open(path, "rb") as file:
            self.names = list(np.load(file).files)

    def arrays(self, wanted: Mapping[str, ValueKind]) -> dict[str, NDArray[Any]]:
        new = [name for name in wanted if name not in self._loaded]
        with read_errors(self.path), open(self.path, "rb") as file:
            archive: Any = np.load(file)
            check_fits_in_memory(self.path, sum(archive.zip.getinfo(f"{name}.npy").file_size for name in new))
            self._loaded |= {name: archive[name] for name in new}
        return {name: self._loaded[name] for name in wanted}
