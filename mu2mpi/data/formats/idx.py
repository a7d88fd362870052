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


@dataclass(frozen=True)
class IdxFile:
    """What a file of unsigned bytes must hold; its name and checksum are those of the decompressed file."""

    name: str
    shape: tuple[int, ...]
    sha256: str

    @property
    def header(self) -> bytes:
        """The bytes before the array: type 8, number of axes, and the length of each."""
        return struct.pack(f">HBB{len(self.shape)}I", 0, 8, len(self.shape), *self.shape)

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
        _check_start(file.read(len(expected.header)), expected, str(path))
    _check_size(os.path.getsize(path), expected, str(path))
    for _ in check_content(path, expected, verify, str(path)) if verify else ():
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
                    _check_start(chunk, expected, label)
                size += len(chunk)
                if size > expected.size:
                    raise InputError(f"{label} holds more than the {expected.size} bytes that it should")
                if verify:
                    digest.update(chunk)
                yield chunk
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{label} is a truncated or damaged gzip file: {error}") from None
    _check_size(size, expected, label)
    if verify and digest.hexdigest() != expected.sha256:
        raise InputError(
            f"{label} has the wrong checksum: SHA-256 of the decompressed content is {digest.hexdigest()}, "
            f"expected {expected.sha256}"
        )


def _is_gzip(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(2) == b"\x1f\x8b"


def _check_start(start: bytes, expected: IdxFile, label: str) -> None:
    header = expected.header
    if start[: len(header)] != header[: len(start)]:
        raise InputError(
            f"{label} is not the file that it should be: it begins with 0x{start[: len(header)].hex()}, "
            f"expected 0x{header.hex()} (IDX, bytes, an array of shape {expected.shape})"
        )


def _check_size(size: int, expected: IdxFile, label: str) -> None:
    if size != expected.size:
        raise InputError(f"{label} has {size} bytes when decompressed, expected {expected.size}")
