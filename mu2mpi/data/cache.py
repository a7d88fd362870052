"""The user's cache folder, and files that are written whole or not at all."""

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

import platformdirs

__all__ = ["cache_folder", "write_whole"]


def cache_folder() -> Path:
    """Return the folder for files that can be made again: ``MU2MPI_CACHE_DIR``, or the platform's custom."""
    return Path(os.environ.get("MU2MPI_CACHE_DIR") or platformdirs.user_cache_dir("mu2mpi")).expanduser()


def write_whole(path: Path, chunks: Iterable[bytes]) -> None:
    """Write a file such that no reader, and no crash, ever meets a part of it.

    Several processes may write the same file at once: each has a temporary file of its own, and the last
    rename wins. A process that has the older file open or mapped keeps it.

    Parameters
    ----------
    path : Path
        File to write; its folder is made if need be.
    chunks : iterable of bytes
        The content. If it raises, nothing is left behind.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(handle, "wb") as output:
            for chunk in chunks:
                output.write(chunk)
            output.flush()
            os.fsync(output.fileno())
        # mkstemp lets only the owner read, and a data folder may be shared.
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
