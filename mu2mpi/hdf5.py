"""How HDF5 files are opened to be read, also where no file can be locked, and numbers and texts in them."""

import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from mu2mpi.errors import InputError

NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
"""What network file systems that have no locks say when they are asked for one."""

VARIABLE = "HDF5_USE_FILE_LOCKING"


def open_to_read(path: Path | str, locking: bool | None = None) -> h5py.File:
    """Open a file to read it, by default with a lock if one is to be had.

    Raises OSError if HDF5 cannot open it, and InputError if another program has locked it, or the user wants
    a lock where there are none: HDF5 prefers its variable to what a program asks for.
    """
    try:
        return h5py.File(path, "r", locking=locking)
    except BlockingIOError:
        raise InputError(
            f"{path} is in use: another program has it open to write to it, or holds a lock on it; close "
            f"that program, or if it writes nothing, set {VARIABLE}=FALSE"
        ) from None
    except OSError as error:
        # One that HDF5 has opened already, as a part of another, must be opened in the same way.
        if locking is not False:
            return open_to_read(path, locking=False)
        if error.errno in NO_LOCKS:
            raise InputError(
                f"{path} is on a file system without locks, and HDF5 asks for one because {VARIABLE} is "
                f"{os.environ.get(VARIABLE)}: unset it, or set it to FALSE"
            ) from None
        raise


# h5py's own objects take several times as long as the calls below, which matters for a thousand files.


def open_group(file: h5py.File, name: str) -> Any:
    """Return the id of a group, which knows whether it holds a name: ``b"x" in group``."""
    return h5py.h5g.open(file.id, name.encode())


def number_in(group: Any, name: str) -> float:
    """Return an attribute that is a number."""
    value = np.empty(())
    h5py.h5a.open(group, name.encode()).read(value)
    return float(value)


def text_in(group: Any, name: str) -> str:
    """Return an attribute that is text, or raise a TypeError."""
    attribute = h5py.h5a.open(group, name.encode())
    value = np.empty((), attribute.dtype)
    if value.dtype.kind not in "SO":
        raise TypeError(f"the attribute {name!r} is not text")
    attribute.read(value)
    return bytes(value[()]).decode()


def shape_in(group: Any, name: str) -> tuple[int, ...]:
    """Return the shape of an array."""
    shape: tuple[int, ...] = h5py.h5d.open(group, name.encode()).shape
    return shape


def array_in(group: Any, name: str) -> NDArray[Any]:
    """Return an array of numbers."""
    dataset = h5py.h5d.open(group, name.encode())
    values = np.empty(dataset.shape, dataset.dtype)
    if values.size:
        dataset.read(h5py.h5s.ALL, h5py.h5s.ALL, values)
    return values


def columns_in(group: Any, length: int, names: Iterable[str]) -> Iterator[NDArray[np.float64]]:
    """Yield columns of numbers of one length; HDF5 raises an error if one has another."""
    space = h5py.h5s.create_simple((length,))
    for name in names:
        values = np.empty(length)
        h5py.h5d.open(group, name.encode()).read(space, h5py.h5s.ALL, values, h5py.h5t.NATIVE_DOUBLE)
        yield values
