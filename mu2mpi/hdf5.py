"""How HDF5 files are opened to be read, also where no file can be locked."""

import errno
import os
from pathlib import Path

import h5py

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
