"""File operations: readability checks, atomic writes, temporary files and the cache folder."""

import fcntl
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from mu2mpi.core.errors import InputError

FileIdentity = tuple[int, int, int, int]  # Device, inode, size in bytes, modification time in nanoseconds

_temporaries: set[Path] = set()  # Temporary files of unfinished writes in this process


def cache_folder() -> Path:
    """Folder for files that can be regenerated: ``MU2MPI_CACHE_DIR``, or the platform's cache folder."""
    import platformdirs

    return Path(os.environ.get("MU2MPI_CACHE_DIR") or platformdirs.user_cache_dir("mu2mpi")).expanduser()


def check_readable(path: Path | str) -> None:
    """Raise InputError unless a path, with links followed, is a readable regular file or a folder."""
    # Opening a pipe blocks until it has a writer. A path with a null byte raises ValueError.
    try:
        if is_regular := stat.S_IFMT(os.stat(path).st_mode) in (stat.S_IFREG, stat.S_IFDIR):
            open(path, "rb").close()
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {getattr(error, 'strerror', error)}") from None
    if not is_regular:
        raise InputError(f"cannot read {path}: it is a pipe, a socket or a device. Copy it to a file.")


@contextmanager
def atomic_writer(
    path: Path, *, mode: int = 0o666, replace: bool = True, durable: bool = True
) -> Iterator[BinaryIO]:
    """Context manager: binary file that becomes `path` at the end, so that nobody observes partial content.

    It has a temporary name, and is flushed to the disk and renamed. Missing folders are created; the umask
    restricts `mode`. Unless `durable`, it is not flushed, so that a power failure may leave an empty file.
    FileExistsError if the file exists and `replace` is false; OSError names `path`.
    """
    try:
        target = Path(os.path.realpath(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        with temporary_path(target) as temporary:
            descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
            with open(descriptor, "w+b") as file:
                yield file
                file.flush()
                if durable:
                    os.fsync(file.fileno())
            _rename(temporary, target, replace)
    except FileExistsError:
        raise
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    if durable:
        # Some network file systems cannot flush a folder; the file is written nevertheless.
        with suppress(OSError):
            folder = os.open(target.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)


def write_atomically(path: Path, chunks: Iterable[bytes | memoryview], **options: Any) -> None:
    """Write chunks of bytes to a file by `atomic_writer`, with its options."""
    with atomic_writer(path, **options) as file:
        file.writelines(chunks)


def check_creatable(path: Path) -> None:
    """Raise OSError unless a file can be created at a path; leaves the disk unchanged."""
    folder = next(parent for parent in path.absolute().parents if os.path.lexists(parent))
    # Permission bits do not show a read-only or full file system, so that a file is created.
    with temporary_path(folder / path.name) as probe:
        probe.touch(exist_ok=False)


def file_identity(path: Path) -> FileIdentity | None:
    """Device, inode, size and modification time of a file, to detect changes; None if it cannot be opened."""
    with suppress(OSError):
        # Network file systems revalidate cached attributes when a file is opened, but not on stat.
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
    return None


def link_or_copy(path: Path, link: Path) -> None:
    """Make `link` a hard link to a file, or a copy if hard links are unsupported; replaces an old `link`."""
    with temporary_path(link) as temporary:
        try:
            os.link(path, temporary)
        except OSError:
            write_atomically(link, (path.read_bytes(),), mode=stat.S_IMODE(path.stat().st_mode))
        else:
            os.replace(temporary, link)


class FileLock:
    """Lock of an output, held by one process at a time until it ends or calls `close`: a file beside it."""

    def __init__(self, output: Path) -> None:
        self._path, self._descriptor = output.with_name(f"{output.name}.lock"), -1

    def acquire(self) -> None:
        """Take the lock, unless this object has it; BlockingIOError if another one has.

        A file system without locks, and a folder that cannot be written, exclude nobody.
        """
        while self._descriptor < 0:
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
            except OSError:
                return
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_removed = os.fstat(descriptor).st_nlink == 0
            except BlockingIOError:
                os.close(descriptor)
                raise
            except OSError:
                is_removed = False
            if is_removed:
                os.close(descriptor)
            else:
                self._descriptor = descriptor

    def close(self) -> None:
        """Release the lock, if this object has it."""
        if self._descriptor >= 0:
            # Removed first, so that nobody else has locked the file that is removed.
            with suppress(OSError):
                self._path.unlink()
            os.close(self._descriptor)
            self._descriptor = -1


@contextmanager
def temporary_path(path: Path) -> Iterator[Path]:
    """Context manager: unique path for a temporary file or folder beside `path`; removed at the end."""
    # Ranks in different containers may have the same process id, so it alone is not unique.
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    _temporaries.add(temporary)
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.unlink(missing_ok=True)
        _temporaries.discard(temporary)


def remove_temporaries() -> None:
    """Remove the temporary files of unfinished writes in this process, before it is terminated."""
    for temporary in tuple(_temporaries):
        with suppress(OSError):
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.unlink(missing_ok=True)


def remove_stale_temporaries(path: Path) -> None:
    """Remove temporary files that any process left behind for `path` or for names that extend its name."""
    for target in {path.absolute(), Path(os.path.realpath(path))}:
        pattern = re.compile(rf"\.{re.escape(target.name)}(\..+)?\.\d+-[0-9a-f]{{8}}\.tmp")
        for file_name in os.listdir(target.parent):
            if pattern.fullmatch(file_name):
                target.with_name(file_name).unlink(missing_ok=True)


def _rename(temporary: Path, path: Path, replace: bool) -> None:
    if not replace:
        try:
            # Unlike a rename, creating a link fails atomically if the name exists.
            os.link(temporary, path)
            return
        except OSError:  # The name exists, or the file system has no hard links.
            if os.path.lexists(path):
                raise FileExistsError(path) from None
    os.replace(temporary, path)
