"""Arrays of bytes in the IDX format of MNIST, compressed or not, opened without copying them."""

import gzip
import hashlib
import math
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mu2mpi.errors import InputError
from mu2mpi.files import cache_folder, check_readable, write_whole

CHUNK = 1 << 20
GZIP_MAGIC, UNSIGNED_BYTES = b"\x1f\x8b", 8


@dataclass(frozen=True)
class IdxFile:
    """What a file of unsigned bytes must hold; its name and checksum are those of the decompressed file."""

    name: str
    shape: tuple[int, ...]
    sha256: str

    @property
    def header(self) -> bytes:
        """The bytes before the array: type, number of axes, and the length of each."""
        return struct.pack(f">HBB{len(self.shape)}I", 0, UNSIGNED_BYTES, len(self.shape), *self.shape)

    @property
    def size(self) -> int:
        """Size of the decompressed file in bytes."""
        return len(self.header) + math.prod(self.shape)


def open_idx(path: Path, expected: IdxFile, verify: bool) -> NDArray[np.uint8]:
    """Open the array in a file, read-only and mapped into memory; with `verify`, compare its checksum.

    What is compressed, by its content and not its name, is unpacked once into the user's cache folder, or
    into memory if that cannot be written.
    """
    check_readable(path)
    try:
        return (_open_packed if _is_gzip(path) else _open_plain)(path, expected, verify)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None


def _open_plain(path: Path, expected: IdxFile, verify: bool) -> NDArray[np.uint8]:
    with open(path, "rb") as file:
        _check_header(file.read(len(expected.header)), expected, str(path))
        _check_size(os.fstat(file.fileno()).st_size, expected, str(path))
    if verify:
        for _ in check_content(path, expected, verify, str(path)):
            pass
    # A plain array over the mapping: rows taken from it are then plain arrays too.
    return np.asarray(np.memmap(path, np.uint8, "r", len(expected.header), expected.shape))


def _open_packed(path: Path, expected: IdxFile, verify: bool) -> NDArray[np.uint8]:
    if os.path.getsize(path) > 2 * expected.size + CHUNK:
        raise InputError(
            f"{path} is larger than what it should hold: {expected.size} bytes, before compression"
        )
    # Named after the archive's checksum, so that a good copy in the cache never hides a damaged archive.
    with open(path, "rb") as file:
        archive = hashlib.file_digest(file, "sha256").hexdigest()
    unpacked = cache_folder() / "unpacked" / f"{expected.name}-{archive}"
    with suppress(OSError, InputError):
        return _open_plain(unpacked, expected, verify)
    try:
        write_whole(unpacked, check_content(path, expected, verify, str(path)))
        return _open_plain(unpacked, expected, verify=False)
    except OSError:
        content = b"".join(check_content(path, expected, verify, str(path)))
    return np.frombuffer(content, np.uint8, offset=len(expected.header)).reshape(expected.shape)


def check_content(path: Path, expected: IdxFile, verify: bool, label: str) -> Iterator[bytes]:
    """Yield the decompressed content of a file, which messages call `label`, in pieces.

    The InputError comes as soon as the content is seen to be wrong; after the last piece at the latest.
    """
    digest, size = hashlib.sha256(), 0
    try:
        with gzip.open(path, "rb") if _is_gzip(path) else open(path, "rb") as file:
            while chunk := file.read(CHUNK):
                if size == 0:
                    _check_header(chunk, expected, label)
                size += len(chunk)
                if size > expected.size:
                    raise InputError(f"{label} holds more than the {expected.size} bytes that it should")
                if verify:
                    digest.update(chunk)
                yield chunk
    except EOFError:
        raise InputError(f"{label} is a truncated gzip file") from None
    except (zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{label} is a damaged gzip file: {error}") from None
    _check_size(size, expected, label)
    if verify and digest.hexdigest() != expected.sha256:
        raise InputError(
            f"{label} has the wrong checksum: SHA-256 of the decompressed content is {digest.hexdigest()}, "
            f"expected {expected.sha256}"
        )


def _is_gzip(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(2) == GZIP_MAGIC


def _check_header(start: bytes, expected: IdxFile, label: str) -> None:
    header = expected.header
    if start[:4] != header[:4][: len(start)]:
        raise InputError(
            f"{label} is not the file that it should be: it starts with the magic number "
            f"0x{start[:4].hex()}, expected 0x{header[:4].hex()} (IDX, bytes, {len(expected.shape)} axes)"
        )
    if len(start) >= len(header) and start[: len(header)] != header:
        shape = struct.unpack_from(f">{len(expected.shape)}I", start, 4)
        raise InputError(f"{label} holds an array of shape {shape}, expected {expected.shape}")


def _check_size(size: int, expected: IdxFile, label: str) -> None:
    if size != expected.size:
        what = "is empty" if size == 0 else "is truncated" if size < expected.size else "is too long"
        raise InputError(f"{label} {what}: {size} bytes when decompressed, expected {expected.size}")
