"""HDF5 files: in-memory images with checksums, file locks, and access to attributes and arrays."""

import errno
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5a, h5d, h5f, h5g, h5p, h5s, h5t
from numpy.typing import NDArray

from mu2mpi.core.errors import InputError

HDF5_LOCKING_VARIABLE = "HDF5_USE_FILE_LOCKING"
MAX_COMPACT_BYTES = 1024  # Largest array stored in its object header, which takes fewer bytes than a chunk
METADATA_BLOCK_BYTES = 512  # Allocated at once; the unused end of a block stays in the file
_NATIVE_TYPES = {np.dtype("f8"): h5t.NATIVE_DOUBLE, np.dtype("i8"): h5t.NATIVE_INT64}  # h5py builds them anew
MAX_HEADER_ATTRIBUTES = 1 << 15  # Keeps attributes in object headers, which have checksums


def open_for_reading(path: Path | str, locking: bool | None = None) -> h5py.File:
    """Open an HDF5 file for reading, by default with a file lock; InputError if the lock cannot be taken."""
    try:
        return h5py.File(path, "r", locking=locking)
    except BlockingIOError:
        raise InputError(
            f"{path} is in use: another program writes to it or holds a lock on it. Close that program or, "
            f"if it does not write, set {HDF5_LOCKING_VARIABLE}=FALSE."
        ) from None
    except OSError as error:
        # HDF5 requires the same locking for a file that it has open already, as an external link's target.
        if locking is not False:
            return open_for_reading(path, locking=False)
        if error.errno in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
            raise InputError(
                f"{path} is on a file system without locks, which {HDF5_LOCKING_VARIABLE}="
                f"{os.environ.get(HDF5_LOCKING_VARIABLE)} requires. Unset it, or set it to FALSE."
            ) from None
        raise


def hdf5_file_bytes(write_content: Callable[[h5py.File], object]) -> bytes:
    """Bytes of an HDF5 file written by `write_content(file)`; metadata and attributes have checksums."""
    # Created in memory, as HDF5 may abort on a full disk; under a name that no other thread uses.
    access, creation = h5p.create(h5p.FILE_ACCESS), h5p.create(h5p.FILE_CREATE)
    access.set_fapl_core(backing_store=False)
    access.set_libver_bounds(h5f.LIBVER_V110, h5f.LIBVER_V110)  # Format 1.10 has checksums of metadata.
    access.set_meta_block_size(METADATA_BLOCK_BYTES)
    _track_order(creation)
    with h5py.File(h5f.create(b"%d" % id(access), h5f.ACC_TRUNC, creation, access)) as file:
        write_content(file)
        file.flush()
        return file.id.get_file_image()  # type: ignore[no-any-return]


def _track_order(creation: Any) -> Any:
    """Let a new group keep its members in creation order, with all attributes in its object header."""
    for set_order in (creation.set_attr_creation_order, creation.set_link_creation_order):
        set_order(h5p.CRT_ORDER_TRACKED)  # An index of the order takes half a kilobyte.
    creation.set_attr_phase_change(MAX_HEADER_ATTRIBUTES, 0)
    return creation


def create_group(parent: h5py.Group, name: str, attributes: Mapping[str, Any] | None = None) -> h5py.Group:
    """Create an HDF5 group that keeps the order of its members, with attributes as `write_attributes`."""
    creation = _track_order(h5p.create(h5p.GROUP_CREATE))
    group = h5py.Group(h5g.create(parent.id, name.encode(), gcpl=creation))
    write_attributes(group, attributes or {})
    return group


def write_attributes(target: h5py.Group | h5py.Dataset, attributes: Mapping[str, Any]) -> None:
    """Write HDF5 attributes; strings have fixed length, since variable-length ones have no checksum."""
    for name, value in attributes.items():
        array = np.asarray(value)
        if isinstance(value, str):
            text = value.replace("\0", "").encode()  # Some MPI versions end with a null byte.
            array = np.array(text, h5py.string_dtype("utf-8", max(1, len(text))))
        elif array.dtype == bool:  # netCDF has no boolean type.
            array = array.astype(np.int64)
        # Several times faster than h5py's `attrs`.
        space = h5s.create_simple(array.shape) if array.shape else h5s.create(h5s.SCALAR)
        stored_type = h5t.py_create(array.dtype, logical=True)
        h5a.create(target.id, name.encode(), stored_type, space).write(array)


def read_attributes(target: h5py.Group | h5py.Dataset, *names: str) -> dict[str, Any]:
    """HDF5 attributes by name, restricted to `names` if any are given, with byte strings decoded to str."""
    group = target.id
    present = [name for name in names if h5a.exists(group, name.encode())] if names else target.attrs
    return {name: _read_attribute(group, name) for name in present}


def write_array(group: h5py.Group, name: str, values: NDArray[Any], **filters: Any) -> h5py.Dataset:
    """Write an array as a dataset with a checksum: Fletcher-32, or that of the header if it is small.

    `filters` are h5py options (compression) of larger arrays.
    """
    if not 0 < values.nbytes <= MAX_COMPACT_BYTES:
        filters = {"fletcher32": True, **filters} if values.size else {}  # Empty arrays support no filters.
        return group.create_dataset(name, data=values, **filters)
    creation = h5p.create(h5p.DATASET_CREATE)
    creation.set_layout(h5d.COMPACT)
    return group.create_dataset(name, data=values, dcpl=creation)


# The low-level calls below are several times faster than h5py's objects, which matters for 1000 files.


def _read_attribute(group: Any, name: str) -> Any:
    attribute = h5a.open(group, name.encode())
    stored_type = attribute.get_type()
    is_fixed = isinstance(stored_type, h5t.TypeStringID) and not stored_type.is_variable_str()
    if is_fixed and stored_type.get_strpad() == h5t.STR_NULLPAD:
        value = np.empty(attribute.shape, f"S{stored_type.get_size()}")
    else:
        value, stored_type = np.empty(attribute.shape, attribute.dtype), None
    attribute.read(value, stored_type)
    content = value[()]
    return content.decode() if isinstance(content, bytes) else content


def open_group(file: h5py.Group, name: str) -> Any:
    """Low-level h5py identifier of an HDF5 group; supports ``b"name" in group``."""
    return h5g.open(file.id, name.encode())


def read_number(group: Any, name: str) -> float:
    """Numeric attribute of a group from `open_group`, as a float."""
    value = np.empty(())
    h5a.open(group, name.encode()).read(value, h5t.NATIVE_DOUBLE)
    return float(value)


def read_text(group: Any, name: str) -> str:
    """Text attribute of a group from `open_group`; TypeError if the attribute is not text."""
    if not isinstance(text := _read_attribute(group, name), str):
        raise TypeError(f"the attribute {name!r} is not text")
    return text


def read_array(group: Any, name: str, dtype: type[np.generic] | None = None) -> NDArray[Any]:
    """Numeric array in a group from `open_group`, converted to `dtype` if one is given."""
    dataset = h5d.open(group, name.encode())
    values = np.empty(dataset.shape, dtype or dataset.dtype)
    if values.size:
        dataset.read(h5s.ALL, h5s.ALL, values, _NATIVE_TYPES.get(values.dtype))
    return values
