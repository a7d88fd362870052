"""A checksum behind the last byte of a result file, where HDF5 does not look.

HDF5 guards its arrays and most of its own structures, but not the text of attributes: a flipped bit
there can change a setting unnoticed, or send the library into an endless loop. The seal is compared
before HDF5 sees the file. It is one line of text, ``mu2mpi sha256`` and the digest of all bytes before
that line. A result that another program has changed loses its seal and is read without this check; of a
checkpoint, which must be just as it was written, it is required.
"""

import hashlib
import os
from pathlib import Path

MARK = b"\nmu2mpi sha256 "
LENGTH = len(MARK) + 64 + 1
BLOCK = 2**20


def seal_of(content: bytes | memoryview) -> bytes:
    """Return the seal to put behind this content."""
    return _line(hashlib.sha256(content).hexdigest())


def seal_is_broken(path: Path, required: bool = False) -> bool:
    """Return whether a file ends in a seal that does not fit what is before it; or in none, if required."""
    size = os.path.getsize(path) - LENGTH
    if size < 0:
        return required
    with open(path, "rb") as file:
        file.seek(size)
        seal = file.read()
        if not seal.startswith(MARK):
            return required
        file.seek(0)
        digest = hashlib.sha256()
        for start in range(0, size, BLOCK):
            digest.update(file.read(min(BLOCK, size - start)))
    return seal != _line(digest.hexdigest())


def _line(digest: str) -> bytes:
    return MARK + digest.encode() + b"\n"
