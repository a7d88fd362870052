"""How much memory is left, so that what is too large is refused, and not the program killed."""

import math
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from mu2mpi.errors import InputError

GROUPS = Path("/sys/fs/cgroup")
LIMITS = (("memory.max", "memory.current", ""), ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"))
"""In which files of a control group its limit and its use are, and how its counts begin: versions 2 and 1."""


def check_room(path: Path, needed: float) -> None:
    """Raise InputError if a file takes more memory than is left."""
    left = memory_left()
    if needed > left:
        raise InputError(
            f"{path} does not fit into memory: it takes {needed / 2**30:.3g} GiB or more, and "
            f"{left / 2**30:.3g} are left; HDF5 files are read in parts"
        )


def memory_left() -> float:
    """Return how many bytes this process may still take of the machine, and of a job's share of it.

    Infinity where nothing tells, as on systems that are not Linux.
    """
    left = [math.inf, *_counts(Path("/proc/meminfo"), "MemAvailable", 1024)]
    for folder in _groups():
        for limit, used, prefix in LIMITS:
            for most, now in zip(_counts(folder / limit), _counts(folder / used), strict=False):
                # Files that are kept in memory since they were read give way to what needs it.
                left.append(most - now + sum(_counts(folder / "memory.stat", f"{prefix}(?:in)?active_file")))
    return max(0, min(left))


def _counts(file: Path, name: str = "", unit: int = 1) -> Iterator[int]:
    """Yield the numbers that follow a name in a file of the system's, if there is such a file."""
    with suppress(OSError):
        for number in re.findall(rf"^{name}:?\s*(\d+)", file.read_text(), re.MULTILINE):
            yield unit * int(number)


def _groups() -> Iterator[Path]:
    """Yield the folders of the control groups to which this process belongs, such as those of a SLURM job."""
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, place = line.split(":", 2)
            if controllers in ("", "memory"):
                group = Path(os.path.normpath(f"{GROUPS}/{controllers}/{place}"))
                yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(GROUPS))
