"""The files of a command that `mu2mpi launch` started: whether they are done, or at least have moved on."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from mu2mpi.files import Identity, identity
from mu2mpi.results.schema import checkpoint_path


class Outputs:
    """The results that a command is to write, and their checkpoints, compared with what was there before.

    With `overwrite`, a result counts only if it is another one than before.
    """

    def __init__(self, paths: Sequence[Path], overwrite: bool = False) -> None:
        self._results, self._overwrite = {*paths}, overwrite
        self._before = self._now()

    def __bool__(self) -> bool:
        return bool(self._results)

    def folder(self) -> Path:
        """Return the nearest existing folder of those in which the results will lie."""
        lowest = min(self._results, default=Path("result")).parent
        return next(folder for folder in (lowest, *lowest.absolute().parents) if folder.is_dir())

    def have_moved_on(self) -> bool:
        """Return whether there is a result or a checkpoint which was not there before."""
        return any(self._before.get(path) != found for path, found in self._now().items())

    def are_complete(self) -> bool:
        """Return whether all results are there, and no checkpoint of one is left."""
        now = self._now()
        old = {path for path, found in self._before.items() if self._overwrite and now.get(path) == found}
        return bool(self._results) and now.keys() - old == self._results

    def _now(self) -> dict[Path, Identity | None]:
        wanted, there = self._results | {checkpoint_path(path) for path in self._results}, set()
        # A look into the folder instead of one for each of what may be thousands of files.
        for folder in {path.parent for path in self._results}:
            with suppress(OSError):
                there |= wanted & {*folder.iterdir()}
        return {path: identity(path) for path in there}
