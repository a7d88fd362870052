"""Files: which can be read, how all or nothing is written, and where those lie that can be made again."""

import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mu2mpi.core.errors import InputError

Identity = tuple[int, int, int, int]

_unfinished: set[Path] = set()


def cache_folder() -> Path:
    """Return the folder for files that can be made again: ``MU2MPI_CACHE_DIR``, or the platform's custom."""
    import platformdirs

    return Path(os.environ.get("MU2MPI_CACHE_DIR") or platformdirs.user_cache_dir("mu2mpi")).expanduser()


def check_readable(path: Path | str) -> None:
    """Raise InputError unless a file can be read that is an ordinary one, or a link to such a one."""
    # To open a pipe waits for whoever writes to it, and only one rank could read a pipe or a device.
    try:
        if is_ordinary := stat.S_IFMT(os.stat(path).st_mode) in (stat.S_IFREG, stat.S_IFDIR):
            open(path, "rb").close()
    except (OSError, ValueError) as error:
        # A name with a zero byte is no OSError.
        raise InputError(f"cannot read {path}: {getattr(error, 'strerror', error)}") from None
    if not is_ordinary:
        raise InputError(f"cannot read {path}: it is a pipe, a socket or a device; copy it to a file")


def write_whole(
    path: Path, chunks: Iterable[bytes | memoryview], *, mode: int = 0o666, replace: bool = True
) -> None:
    """Write a file such that no reader, and no crash, ever meets a part of it.

    The file gets its name once its content is on the disk; its folder is made if need be, and a symbolic link
    is followed. Raises FileExistsError if a file that may not be replaced is there, or appears meanwhile, and
    OSError that names the file if it cannot be written.
    """
    try:
        target = Path(os.path.realpath(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        with unfinished(target) as temporary:
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            with open(handle, "wb") as file:
                for chunk in chunks:
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
            _move(temporary, target, replace)
    except FileExistsError:
        raise
    except OSError as error:
        # Python names the temporary file, if any; the user knows this one.
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    # Some network file systems cannot flush a folder; the file is in its place all the same.
    with suppress(OSError):
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def identity(path: Path) -> Identity | None:
    """Return what tells a file from one that is put in its place, or is written to; None if there is none."""
    with suppress(OSError):
        # A network file system asks its server at every opening, but not whenever only the name is looked up.
        with open(path, "rb") as opened:
            now = os.fstat(opened.fileno())
        return now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns
    return None


def second_name(path: Path, name: Path) -> None:
    """Give a file a second name in the same folder, in place of what had it; without hard links, a copy."""
    with unfinished(name) as temporary:
        try:
            os.link(path, temporary)
        except OSError:
            write_whole(name, (path.read_bytes(),), mode=stat.S_IMODE(path.stat().st_mode))
        else:
            os.replace(temporary, name)


@contextmanager
def unfinished(path: Path) -> Iterator[Path]:
    """Give a hidden name beside a file that no other process has; what has it afterwards is removed."""
    # Ranks in containers often share a process number, so it alone is not unique.
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    _unfinished.add(temporary)
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)
        _unfinished.discard(temporary)


def remove_unfinished() -> None:
    """Remove all files that are being written, before the process ends in the middle of it."""
    for temporary in tuple(_unfinished):
        with suppress(OSError):
            temporary.unlink()


def remove_stale_temporaries(path: Path) -> None:
    """Remove temporary files of a target, and of targets whose names begin with its own, of any process."""
    # A writer that is still alive gets FileNotFoundError when it renames its file.
    for target in {path, Path(os.path.realpath(path))}:
        pattern = re.compile(rf"\.{re.escape(target.name)}(\..+)?\.\d+-[0-9a-f]{{8}}\.tmp")
        for name in os.listdir(target.parent):
            if pattern.fullmatch(name):
                target.with_name(name).unlink(missing_ok=True)


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
