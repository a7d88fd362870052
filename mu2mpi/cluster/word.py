"""The word that rank 0 leaves of how a run ended: without it, `mu2mpi launch` takes no end for a good one.

Launchers cannot be asked: some end with code 0 after the loss of a node. The word is the exit code of the
run, in an empty file that is there before the ranks start. A rank of an earlier start of the job, which its
scheduler forgot, does not find its file any more, and makes none.
"""

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

VARIABLE = "MU2MPI_WORD"
"""Tells the ranks where to leave word."""


@contextmanager
def place_for_word(folders: Sequence[Path], job: str, start: int) -> Iterator[Path]:
    """Give an empty file in the first of these folders that takes one, and remove it afterwards.

    Those of other starts of the same job are removed as well: a start that was killed could not.
    """
    before, after = f".mu2mpi-launch-{job}-", f"-{start}.word"
    for folder in [*folders, Path(tempfile.gettempdir())]:
        with suppress(OSError):
            handle, name = tempfile.mkstemp(prefix=before, suffix=after, dir=folder.absolute())
            break
    else:
        raise OSError(
            f"no file can be made in {', '.join(map(str, folders))}, nor in {tempfile.gettempdir()}"
        )
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
    """Return the exit code that was left, or None if none was."""
    with suppress(OSError, ValueError):
        return int(place.read_text("ascii"))
    return None


def is_wanted() -> bool:
    """Return whether somebody waits for the word of this process."""
    return bool(os.environ.get(VARIABLE))


def leave_word(code: int) -> bool:
    """Leave word that the run ends with this code, and return whether it could be left."""
    place = os.environ[VARIABLE]
    try:
        # A network file system shows others what was written once the file is closed.
        with open(place, "r+b", buffering=0) as file:
            file.write(b"%d\n" % code)
            os.fsync(file.fileno())
    except OSError as error:
        print(
            f"mu2mpi: cannot leave word of the end of this run in {place}: {error.strerror}; name an "
            "--output in a folder that all nodes share",
            file=sys.stderr,
            flush=True,
        )
        return False
    return True
