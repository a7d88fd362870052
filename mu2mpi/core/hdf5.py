"""HDF5 files: written with checksums, opened with or without locks, and the numbers and texts in them."""

import errno
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5f, h5p
from numpy.typing import NDArray

from mu2mpi.core.errors import InputError

VARIABLE = "HDF5_USE_FILE_LOCKING"


def open_to_read(path: Path | str, locking: bool | None = None) -> h5py.File:
    """Open a file to read it, by default with a lock if one is to be had.

    Raises OSError if HDF5 cannot open it, and InputError if another program or the variable is in the way.
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
        # What network file systems that have no locks say when they are asked for one.
        if error.errno in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
            raise InputError(
                f"{path} is on a file system without locks, and HDF5 asks for one because {VARIABLE} is "
                f"{os.environ.get(VARIABLE)}: unset it, or set it to FALSE"
            ) from None
        raise


def file_image(fill: Callable[[h5py.File], object]) -> bytes:
    """Bytes of a new HDF5 file, in which HDF5 guards its structures and all attributes by checksums."""
    # HDF5 writes to memory alone: when a disk fills up, it cannot close its file and may end the process.
    access, creation = h5p.create(h5p.FILE_ACCESS), h5p.create(h5p.FILE_CREATE)
    access.set_fapl_core(backing_store=False)
    # Checksums of structures come with this version.
    access.set_libver_bounds(h5f.LIBVER_V110, h5f.LIBVER_V110)
    for track in (creation.set_attr_creation_order, creation.set_link_creation_order):
        track(h5p.CRT_ORDER_TRACKED | h5p.CRT_ORDER_INDEXED)
    # Long attributes outside of the header would have none: all stay in it.
    creation.set_attr_phase_change(1 << 15, 0)
    with h5py.File(h5f.create(b"image", h5f.ACC_TRUNC, creation, access)) as file:
        fill(file)
        file.flush()
        return file.id.get_file_image()  # type: ignore[no-any-return]


def plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes as netCDF takes them, which has no booleans."""
    return {k: int(v) if isinstance(v, bool | np.bool_) else v for k, v in attributes.items()}


def write_attributes(target: h5py.Group | h5py.Dataset, attributes: Mapping[str, Any]) -> None:
    """Write attributes; texts with a fixed length, as no checksum guards those of a variable one."""
    for name, value in plain(attributes).items():
        if isinstance(value, str):
            # Some MPI libraries end their version in a zero byte.
            text = value.replace("\0", "").encode()
            target.attrs.create(name, text, dtype=h5py.string_dtype("utf-8", max(1, len(text))))
        else:
            target.attrs[name] = value


def attributes_of(target: h5py.Group | h5py.Dataset, *names: str) -> dict[str, Any]:
    """Attributes by name, all or those of some names, with texts of fixed or variable length as str."""
    found = ((name, target.attrs[name]) for name in names or target.attrs if name in target.attrs)
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in found}


def write_array(group: h5py.Group, name: str, values: NDArray[Any], **filters: Any) -> h5py.Dataset:
    """Write an array with a checksum, and perhaps compressed."""
    # HDF5 cannot filter an array without elements.
    filters = {"fletcher32": True, **filters} if values.size else {}
    return group.create_dataset(name, data=values, **filters)


# h5py's own objects take several times as long as the calls below, which matters for a thousand files.


def open_group(file: h5py.File, name: str) -> Any:
    """Id of a group, with ``b"x" in group``."""
    return h5py.h5g.open(file.id, name.encode())


def number_in(group: Any, name: str) -> float:
    """Attribute that is a number."""
    value = np.empty(())
    h5py.h5a.open(group, name.encode()).read(value)
    return float(value)


def text_in(group: Any, name: str) -> str:
    """Attribute that is text, or a TypeError."""
    attribute = h5py.h5a.open(group, name.encode())
    value = np.empty((), attribute.dtype)
    if value.dtype.kind not in "SO":
        raise TypeError(f"the attribute {name!r} is not text")
    attribute.read(value)
    return bytes(value[()]).decode()


def array_in(group: Any, name: str, dtype: type[np.generic] | None = None) -> NDArray[Any]:
    """Array of numbers, of their own type or another."""
    dataset = h5py.h5d.open(group, name.encode())
    values = np.empty(dataset.shape, dtype or dataset.dtype)
    if values.size:
        dataset.read(h5py.h5s.ALL, h5py.h5s.ALL, values)
    return values
