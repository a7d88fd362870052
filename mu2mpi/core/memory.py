"""Memory available to this process, to reject files that do not fit, and kills for lack of memory."""

import math
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from mu2mpi.core.errors import InputError

CGROUP_ROOT = Path("/sys/fs/cgroup")
# Control group files of the limit and the usage, and prefix of the lines in memory.stat, by version
_CGROUP_V1_FILES = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
CGROUP_MEMORY_FILES = (("memory.max", "memory.current", ""), _CGROUP_V1_FILES)


def check_fits_in_memory(path: Path, size: float) -> None:
    """Raise InputError if a file whose content takes `size` bytes in memory exceeds the available memory."""
    available = available_memory()
    if size > available:
        raise InputError(
            f"{path} does not fit into memory: it takes at least {size / 2**30:.3g} GiB, and "
            f"{available / 2**30:.3g} GiB are available. Use HDF5, which is read in parts."
        )


def available_memory() -> float:
    """Bytes of memory available to this process, by /proc/meminfo and its control groups; inf if unknown."""
    available = [math.inf, *(1024 * kib for kib in _read_integers(Path("/proc/meminfo"), "MemAvailable"))]
    for group in _memory_cgroups():
        for folder in (group, *group.parents):
            available += _available_in_cgroup(folder) if folder.is_relative_to(CGROUP_ROOT) else []
    return max(0, min(available))


def out_of_memory_kills() -> int:
    """Return the number of out-of-memory kills in the control group of this SLURM job or process."""
    groups = (next((f for f in g.parents if f.name.startswith("job_")), g) for g in _memory_cgroups())
    # A group of version 2 counts those of its subgroups, too; in version 1 each group counts its own.
    files = (f for g in groups for f in (g / "memory.events", *g.rglob("memory.oom_control")))
    return sum(kills for file in files for kills in _read_integers(file, "oom_kill"))


def _memory_cgroups() -> Iterator[Path]:
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers in ("", "memory"):
                yield Path(os.path.normpath(f"{CGROUP_ROOT}/{controllers}/{path}"))


def _available_in_cgroup(folder: Path) -> list[float]:
    return [
        # The page cache counts as usage, but the kernel reclaims it under memory pressure.
        maximum - used + sum(_read_integers(folder / "memory.stat", f"{prefix}(?:in)?active_file"))
        for limit, usage, prefix in CGROUP_MEMORY_FILES
        for maximum, used in zip(_read_integers(folder / limit), _read_integers(folder / usage), strict=False)
    ]


def _read_integers(file: Path, line_name: str = "") -> Iterator[int]:
    """Integers after `line_name` at line starts in a file of /proc or /sys; none if it cannot be read."""
    with suppress(OSError):
        yield from map(int, re.findall(rf"^{line_name}:?\s*(\d+)", file.read_text(), re.MULTILINE))
