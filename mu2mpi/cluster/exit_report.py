"""Exit report: file with the exit code of rank 0, as MPI launchers may return 0 after losing a node."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

EXIT_REPORT_VARIABLE = "MU2MPI_EXIT_REPORT"  # Environment variable of the path of the exit report


@contextmanager
def exit_report_file(folder: Path, job_id: str, restarts: int) -> Iterator[Path]:
    """Context manager: path of an empty exit report of a job after so many `restarts`; deletes older ones."""
    # Ranks only write to an existing file, so ranks that survive from an earlier start report nothing.
    prefix, suffix = f".mu2mpi-launch-{job_id}-", f"-{restarts}.exit"
    candidates = (folder.absolute(), Path().absolute(), tempfile.gettempdir())
    writable = next((candidate for candidate in candidates if os.access(candidate, os.W_OK)), folder)
    handle, name = tempfile.mkstemp(prefix=prefix, suffix=suffix, dir=writable)
    os.close(handle)
    for old_report in Path(name).parent.glob(f"{prefix}*.exit"):
        if restarts > 0 and not old_report.name.endswith(suffix):
            old_report.unlink(missing_ok=True)
    try:
        yield Path(name)
    finally:
        with suppress(OSError):
            os.unlink(name)


def read_exit_code(path: Path) -> int | None:
    """Exit code in the exit report at `path`, or None if rank 0 has written none."""
    with suppress(OSError, ValueError):
        return int(path.read_text("ascii"))
    return None


def write_exit_code(code: int) -> bool:
    """Write an exit code to the exit report if `mu2mpi launch` started this run; return whether it did."""
    if not (path := os.environ.get(EXIT_REPORT_VARIABLE)):
        return False
    try:
        with open(path, "r+b", buffering=0) as report:
            report.write(b"%d\n" % code)
            os.fsync(report.fileno())
    except OSError as error:
        problem = f"mu2mpi: cannot write the exit report {path}: {error.strerror}"
        print(f"{problem}. Use an --output in a folder that all nodes share.", file=sys.stderr, flush=True)
        return False
    return True
