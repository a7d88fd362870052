"""Archives of numpy's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mu2mpi.core.lazy import NDArray, np
from mu2mpi.core.memory import check_room
from mu2mpi.core.registry import register
from mu2mpi.data.formats.format import File, Kind
from mu2mpi.data.redaction import reading


@register
class Npz(File):
    """An archive, of which each array is read at its first use."""

    name, suffixes = "npz", (".npz",)

    def __init__(self, path: Path, dimension: int = 0) -> None:
        super().__init__(path)
        self._read: dict[str, NDArray[Any]] = {}
        with reading(path), open(path, "rb") as file:
            self.names = list(np.load(file).files)

    def arrays(self, wanted: Mapping[str, Kind]) -> dict[str, NDArray[Any]]:
        new = [name for name in wanted if name not in self._read]
        with reading(self.path), open(self.path, "rb") as file:
            archive: Any = np.load(file)
            check_room(self.path, sum(archive.zip.getinfo(f"{name}.npy").file_size for name in new))
            self._read |= {name: archive[name] for name in new}
        return {name: self._read[name] for name in wanted}
