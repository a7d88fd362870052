"""The exit code that rank 0 writes for `mu2mpi launch`: launchers may end with 0 after the loss of a node."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

VARIABLE = "MU2MPI_WORD"  # names the file


@contextmanager
def place_for_word(folder: Path, job: str, start: int) -> Iterator[Path]:
    """Make an empty file, in this folder if possible, and remove it and those of earlier starts."""
    # Ranks write to a file that is there, so that those of an earlier start write none.
    before, after = f".mu2mpi-launch-{job}-", f"-{start}.word"
    tried = (folder.absolute(), Path().absolute(), tempfile.gettempdir())
    found = next((each for each in tried if os.access(each, os.W_OK)), folder)
    handle, name = tempfile.mkstemp(prefix=before, suffix=after, dir=found)
    os.close(handle)
    for other in Path(name).parent.glob(f"{before}*.word"):
        if start > 0 and not other.name.endswith(after):
            other.unlink(missing_ok=True)
    try:
        yield Path(name)
    finally:
        with suppress(OSError):
            os.unlink(name)


def read_word(place: Path) -> int | None:
    """Return the exit code that was written, or None if none was."""
    with suppress(OSError, ValueError):
        return int(place.read_text("ascii"))
    return None


def leave_word(code: int) -> bool:
    """Write the exit code of the run if `mu2mpi launch` waits for it; return whether it was written."""
    if not (place := os.environ.get(VARIABLE)):
        return False
    try:
        # A network file system shows others what was written once the file is closed.
        with open(place, "r+b", buffering=0) as file:
            file.write(b"%d\n" % code)
            os.fsync(file.fileno())
    except OSError as error:
        why = f"mu2mpi: cannot leave word of the end of this run in {place}: {error.strerror}"
        print(f"{why}; name an --output in a folder that all nodes share", file=sys.stderr, flush=True)
        return False
    return True
