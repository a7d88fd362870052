"""``python tests/helpers/forbid_locks.py ENOLCK COMMANDS``: commands, in JSON, where no file can be locked.

A filter in the kernel fails each call that locks a file with the error of this name, as some network file
systems do: Lustre without the option flock with ENOSYS, NFS without a lock server with ENOLCK, others with
EOPNOTSUPP.
"""

import ctypes
import errno
import fcntl
import json
import platform
import struct
import sys

NO_NEW_PRIVILEGES, SECCOMP, FILTER = 38, 22, 2  # of prctl
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06  # instructions of the filter
NUMBER, ARCHITECTURE, SECOND = 0, 4, 24  # where a call's number is, its architecture, and its second argument
ALLOW, FAIL = 0x7FFF0000, 0x00050000
CALLS = {"x86_64": (0xC000003E, 73, 72), "aarch64": (0xC00000B7, 32, 25)}  # the numbers of flock and fcntl


def forbid_locks(error: int) -> None:
    """Let no file be locked any more by this process and those that it starts."""
    architecture, flock, control = CALLS[platform.machine()]
    fail = FAIL | error
    program = [
        (LOAD, 0, 0, ARCHITECTURE), (EQUAL, 0, 6, architecture), (LOAD, 0, 0, NUMBER), (EQUAL, 5, 0, flock),
        (EQUAL, 0, 3, control), (LOAD, 0, 0, SECOND), (EQUAL, 2, 0, fcntl.F_SETLK),
        (EQUAL, 1, 0, fcntl.F_SETLKW), (RETURN, 0, 0, ALLOW), (RETURN, 0, 0, fail),
    ]  # fmt: skip
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in program))
    header = struct.pack("HxxxxxxP", len(program), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    for call in (NO_NEW_PRIVILEGES, 1, 0), (SECCOMP, FILTER, header):
        if libc.prctl(call[0], call[1], call[2], 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "the kernel takes no filter")


if __name__ == "__main__":
    forbid_locks(getattr(errno, sys.argv[1]))
    from mu2mpi.cli import main

    sys.exit(max(main(command) for command in json.loads(sys.argv[2])))
