"""Archives of numpy's, whose arrays are read whole."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.data.formats.columns import File, Kind
from mu2mpi.data.formats.table import reading
from mu2mpi.errors import InputError
from mu2mpi.memory import check_room


class Npz(File):
    """An archive, of which each array is read at its first use."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with reading(path):
            self._archive: Any = np.load(path)
            if not isinstance(self._archive, np.lib.npyio.NpzFile):
                raise InputError(f"{path} is not an archive as numpy.savez writes it")
            self.names = self._archive.files
            self._sizes = {info.filename: info.file_size for info in self._archive.zip.infolist()}
        self._read: dict[str, NDArray[Any]] = {}

    def arrays(self, wanted: Mapping[str, Kind]) -> dict[str, NDArray[Any]]:
        """Arrays by name; no more is unpacked than the archive says that they take."""
        new = [name for name in wanted if name not in self._read]
        check_room(self.path, sum(self._sizes.get(f"{name}.npy", 0) for name in new))
        with reading(self.path):
            self._read |= {name: self._archive[name] for name in new}
        return {name: self._read[name] for name in wanted}
