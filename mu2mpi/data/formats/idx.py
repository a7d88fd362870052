"""Arrays of bytes in the IDX format of MNIST, compressed or not, mapped into memory."""

import gzip
import hashlib
import io
import math
import os
import struct
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.errors import InputError
from mu2mpi.files import cache_folder, check_readable, write_whole

PACKED = b"\x1f\x8b"
"""First bytes of what gzip has compressed."""


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
        with open(path, "rb") as file:
            if file.read(len(PACKED)) != PACKED:
                return _mapped(path, expected, verify)
            # Of a file that is far too large, the beginning is refused as truncated.
            archive = PACKED + file.read(min(os.path.getsize(path), 2 * expected.size))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    # Named after the archive's checksum, so that a good copy in the cache never hides a damaged archive.
    copy = cache_folder() / "unpacked" / f"{expected.name}-{hashlib.sha256(archive).hexdigest()}"
    with suppress(OSError, InputError):
        return _mapped(copy, expected, verify)
    content = unpacked(archive, expected, verify, str(path))
    with suppress(OSError):
        write_whole(copy, [content])
        return _mapped(copy, expected, verify=False)
    return np.frombuffer(content, np.uint8, offset=len(expected.header)).reshape(expected.shape)


def _mapped(path: Path, expected: IdxFile, verify: bool) -> NDArray[np.uint8]:
    # What is empty cannot be mapped.
    content: Any = np.memmap(path, np.uint8, "r") if os.path.getsize(path) else b""
    _check(content, expected, verify, str(path))
    # A plain array over the mapping: rows taken from it are then plain arrays too.
    return np.asarray(np.memmap(path, np.uint8, "r", len(expected.header), expected.shape))


def unpacked(archive: bytes, expected: IdxFile, verify: bool, label: str) -> bytes:
    """Return what is compressed in some bytes, which messages call `label`."""
    try:
        content = gzip.GzipFile(fileobj=io.BytesIO(archive)).read(expected.size + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{label} is a truncated or damaged gzip file: {error}") from None
    _check(content, expected, verify, label)
    return content


def _check(content: Any, expected: IdxFile, verify: bool, label: str) -> None:
    header = expected.header
    if bytes(content[: len(header)]) != header or len(content) != expected.size:
        raise InputError(
            f"{label} is not the file that it should be: it has {len(content)} bytes or more that begin with "
            f"0x{bytes(content[:16]).hex()}, expected {expected.size} bytes and 0x{header.hex()}"
        )
    if verify and (found := hashlib.sha256(content).hexdigest()) != expected.sha256:
        raise InputError(f"{label} has the wrong checksum: SHA-256 of its content is {found}")
