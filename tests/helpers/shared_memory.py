"""The shared memory that killed ranks leave behind is removed before and after the tests.

MPICH calls that of a process which no launcher started after the number of the process. It stays when the
process is killed, and the next one of that number, if it is another user's, finds it and cannot start.
"""

import time
from contextlib import suppress
from pathlib import Path

import pytest

SECONDS = 60.0
"""How old memory is, at most, that somebody makes and has not yet mapped."""


def remove_leftovers(folder: Path = Path("/dev/shm")) -> None:
    """Remove MPICH's segments of shared memory in a folder that no process has."""
    segments = list(folder.glob("mpich_shm_*"))
    held = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        # A process may end meanwhile; another user's cannot be looked at, nor can its memory be removed.
        with suppress(OSError):
            held |= {line.split()[-1] for line in maps.read_text().splitlines() if "mpich_shm_" in line}
    for segment in segments:
        with suppress(OSError):
            if str(segment) not in held and time.time() - segment.stat().st_mtime > SECONDS:
                segment.unlink()


def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        remove_leftovers()


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        remove_leftovers()
