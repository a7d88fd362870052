"""Files that are written whole or not at all, and the folder of those that can be made again."""

import contextlib
import os
import secrets
from collections.abc import Iterable
from pathlib import Path


def cache_folder() -> Path:
    """Return the folder for files that can be made again: ``MU2MPI_CACHE_DIR``, or the platform's custom."""
    import platformdirs

    return Path(os.environ.get("MU2MPI_CACHE_DIR") or platformdirs.user_cache_dir("mu2mpi")).expanduser()


def write_whole(
    path: Path, chunks: Iterable[bytes | memoryview], *, mode: int = 0o666, replace: bool = True
) -> None:
    """Write a file such that no reader, and no crash, ever meets a part of it.

    The file gets its name once its content is on the disk. Several processes may write the same file at
    once. Whoever has an older file open or mapped keeps it. The folder is made if need be, and a symbolic
    link is followed; if the chunks raise, nothing is left behind. From the mode, the user's mask is taken.
    Raises FileExistsError if a file that may not be replaced is there, or appears meanwhile, and OSError
    that names the file if it cannot be written.
    """
    try:
        target = Path(os.path.realpath(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        _write(target, chunks, mode, replace)
    except FileExistsError:
        raise
    except OSError as error:
        # Python names the temporary file, if any; the user knows this one.
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def _write(path: Path, chunks: Iterable[bytes | memoryview], mode: int, replace: bool) -> None:
    temporary = temporary_name(path)
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with open(handle, "wb") as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        _move(temporary, path, replace)
    finally:
        temporary.unlink(missing_ok=True)
    # Some network file systems cannot flush a folder; the file is in its place all the same.
    with contextlib.suppress(OSError):
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def temporary_name(path: Path) -> Path:
    """Return a hidden name beside a file that no other process has."""
    # Ranks in containers often share a process number, so it alone is not unique.
    return path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")


def _move(temporary: Path, path: Path, replace: bool) -> None:
    if not replace:
        try:
            # Unlike a rename, a link fails if the name is taken, with no moment in between.
            os.link(temporary, path)
            return
        except FileExistsError:
            raise
        except OSError:
            # A file system without hard links: check just before the rename.
            if os.path.lexists(path):
                raise FileExistsError(path) from None
    os.replace(temporary, path)
