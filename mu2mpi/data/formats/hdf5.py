"""HDF5 files, of which only those rows are read that are asked for."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import register
from mu2mpi.data.formats.base import File
from mu2mpi.data.telling import reading

if TYPE_CHECKING:
    from mu2mpi.data.table import Kind


@register
class Hdf5(File):
    """Datasets of one group, or of the group that each owner has in ``machine``; the file stays open."""

    name, suffixes = "hdf5", (".h5", ".hdf5")

    def __init__(self, path: Path, dimension: int = 0) -> None:
        import h5py

        from mu2mpi.core.hdf5 import open_to_read
        from mu2mpi.data.table import OWNERS

        super().__init__(path)
        with reading(path):
            file: Any = open_to_read(path)
            # HDF5 would open whatever such a link names, be it a pipe.
            if file.id.links.visit(lambda _, link: link.type == h5py.h5l.TYPE_EXTERNAL or None, info=True):
                raise InputError(
                    f"{path} has links to other files, which are not followed: copy what they name"
                )
            owners: Any = file.get(OWNERS)
            self._owners = sorted(owners) if isinstance(owners, h5py.Group) else None
            if self._owners is None:
                self._groups = [_innermost(file)]
                self.names = [name for name in self._groups[0] if not name.startswith("_i_")]
                return
            self._groups = [owners[name] for name in self._owners]
        if not self._groups:
            raise InputError(f"{path}: its group {OWNERS} is empty")
        if not all(isinstance(group, h5py.Group) for group in self._groups):
            raise InputError(f"{path}: its group {OWNERS} should have a group for each owner")
        self.names = [*self._groups[0], OWNERS]

    def arrays(self, wanted: "Mapping[str, Kind]") -> dict[str, Any]:
        """Datasets by name, joined over owners; the owners' names are an array, too."""
        import numpy as np

        from mu2mpi.data.hdf5_rows import Joined, Rows
        from mu2mpi.data.table import OWNERS

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
    import h5py

    from mu2mpi.data.table import USUAL

    while not any(name in group for name in USUAL["features"]):
        inner = [group[name] for name in group if not name.startswith("_i_")]
        if len(inner) != 1 or not isinstance(inner[0], h5py.Group):
            break
        group = inner[0]
    return group
