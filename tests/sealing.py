"""Edit a file of ours with h5py, as a user might, and perhaps seal it again, as nobody should."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py

from mu2mpi.results.seal import LENGTH, MARK, seal_of


@contextmanager
def editing(path: Path, seal: bool = True) -> Iterator[h5py.File]:
    """Open a file to be changed."""
    with h5py.File(path, "r+") as file:
        yield file
    if seal:
        content = path.read_bytes()
        content = content[:-LENGTH] if content[-LENGTH:].startswith(MARK) else content
        path.write_bytes(content + seal_of(content))
