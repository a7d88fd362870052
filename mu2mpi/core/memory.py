"""Available memory, by which files that are too large are rejected before the process is killed."""

import math
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from mu2mpi.core.errors import InputError

CGROUP_ROOT = Path("/sys/fs/cgroup")
# Control group files of the limit and the usage, and prefix of the counters in memory.stat, by version
_VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
CGROUP_FILES = (("memory.max", "memory.current", ""), _VERSION_1)


def check_fits_in_memory(path: Path, size: float) -> None:
    """Raise InputError if the content of a file, `size` bytes, exceeds the available memory."""
    available = available_memory()
    if size > available:
        raise InputError(
            f"{path} does not fit into memory: it takes at least {size / 2**30:.3g} GiB, and "
            f"{available / 2**30:.3g} GiB are available. Use HDF5, which is read in parts."
        )


def available_memory() -> float:
    """Bytes available to this process, by /proc/meminfo and the limits of its control groups; else inf."""
    available = [math.inf, *(1024 * kib for kib in _counters(Path("/proc/meminfo"), "MemAvailable"))]
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            group = Path(os.path.normpath(f"{CGROUP_ROOT}/{controllers}/{path}"))
            for folder in (group, *group.parents) if controllers in ("", "memory") else ():
                available += _available_in(folder) if folder.is_relative_to(CGROUP_ROOT) else []
    return max(0, min(available))


def _available_in(folder: Path) -> list[float]:
    """Bytes available within the limit of a control group, such as that of a SLURM job; empty if none."""
    return [
        # The page cache counts as usage, but the kernel reclaims it under memory pressure.
        maximum - used + sum(_counters(folder / "memory.stat", f"{prefix}(?:in)?active_file"))
        for limit, usage, prefix in CGROUP_FILES
        for maximum, used in zip(_counters(folder / limit), _counters(folder / usage), strict=False)
    ]


def _counters(file: Path, name: str = "") -> Iterator[int]:
    """Integers after a name at the start of a line of a file in /proc or /sys; none without the file."""
    with suppress(OSError):
        yield from map(int, re.findall(rf"^{name}:?\s*(\d+)", file.read_text(), re.MULTILINE))
