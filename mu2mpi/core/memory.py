"""Memory that is left, so that what is too large is refused, and the program not killed."""

import math
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from mu2mpi.core.errors import InputError

GROUPS = Path("/sys/fs/cgroup")
# Files of a control group with its limit and its use, and how its counts begin: versions 2 and 1
LIMITS = (("memory.max", "memory.current", ""), ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"))


def check_room(path: Path, needed: float) -> None:
    """Raise InputError if a file takes more memory than is left."""
    left = memory_left()
    if needed > left:
        raise InputError(
            f"{path} does not fit into memory: it takes {needed / 2**30:.3g} GiB or more, and "
            f"{left / 2**30:.3g} are left; HDF5 files are read in parts"
        )


def memory_left() -> float:
    """Bytes that this process may still take of the machine, and of a job's share of it; else infinity."""
    left = [math.inf, *(1024 * kibibytes for kibibytes in _counts(Path("/proc/meminfo"), "MemAvailable"))]
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, place = line.split(":", 2)
            group = Path(os.path.normpath(f"{GROUPS}/{controllers}/{place}"))
            for folder in (group, *group.parents) if controllers in ("", "memory") else ():
                left += _left_in(folder) if folder.is_relative_to(GROUPS) else []
    return max(0, min(left))


def _left_in(folder: Path) -> list[float]:
    """Bytes that a control group, such as that of a SLURM job, may still take."""
    return [
        # Files that are kept in memory since they were read give way to what needs it.
        most - now + sum(_counts(folder / "memory.stat", f"{prefix}(?:in)?active_file"))
        for limit, used, prefix in LIMITS
        for most, now in zip(_counts(folder / limit), _counts(folder / used), strict=False)
    ]


def _counts(file: Path, name: str = "") -> Iterator[int]:
    """Numbers that follow a name in a file of the system's, if there is such a file."""
    with suppress(OSError):
        yield from map(int, re.findall(rf"^{name}:?\s*(\d+)", file.read_text(), re.MULTILINE))
