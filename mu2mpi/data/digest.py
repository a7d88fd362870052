"""A digest of data, by which a run that goes on knows whether they are those with which it began."""

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

__all__ = ["digest_of"]


def digest_of(facts: str, parts: Iterable[tuple[NDArray[np.generic], ...]]) -> bytes:
    """Return the SHA-256 of some facts and of columns, numbers or texts as objects, that come in parts.

    It depends on every bit, on types and on the order of the rows, but not on where one part ends and the
    next begins. Of SHA-256 and BLAKE2b, processors with instructions for the first compute it twice as fast.
    """
    columns: list[hashlib._Hash] = []
    for part in parts:
        # A width of 8 keeps the type apart from the first bytes that follow it.
        columns = columns or [hashlib.sha256(f"{column.dtype.str:8}".encode()) for column in part]
        for digest, column in zip(columns, part, strict=True):
            digest.update(_content(column))
    pieces = [hashlib.sha256(facts.encode()), *columns]
    return hashlib.sha256(b"".join(piece.digest() for piece in pieces)).digest()


def _content(column: NDArray[np.generic]) -> bytes | memoryview:
    if column.dtype.kind == "O":
        return "".join(f"{len(text)}:{text}" for text in column.tolist()).encode()
    return np.ascontiguousarray(column).reshape(-1).view(np.uint8).data
