"""Report of rank 0 to `mu2mpi launch`: a small file with its exit code and the progress of the run.

MPI launchers may return 0 after losing a node, and do not notice ranks that make no progress.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

RANK_REPORT_VARIABLE = "MU2MPI_RANK_REPORT"  # Environment variable of the path of the report
# The file keeps its size and is written in place, which needs no space on a full disk.
PROGRESS_OFFSET, REPORT_BYTES = 16, 80


class RankReport(NamedTuple):
    """Content of a report."""

    exit_code: int | None = None  # None while rank 0 has not ended
    rounds_done: int = 0  # of the current run
    round_seconds: float = 0.0  # recent duration of its rounds; 0 before the first one
    has_new_rounds: bool = False  # whether a checkpoint or a result has rounds of this start of the job


@contextmanager
def rank_report_file(folder: Path, job_id: str, restarts: int) -> Iterator[Path]:
    """Context manager: empty report in or above a folder, of a job after so many `restarts`."""
    import tempfile

    # Ranks only write to an existing file, so ranks that survive from an earlier start report nothing.
    prefix, suffix = f".mu2mpi-launch-{job_id}-", f"-{restarts}.report"
    folders = (folder, *folder.parents, Path().absolute(), Path(tempfile.gettempdir()))
    writable = next((candidate for candidate in folders if os.access(candidate, os.W_OK)), folder)
    handle, name = tempfile.mkstemp(prefix=prefix, suffix=suffix, dir=writable)
    try:
        with open(handle, "wb", buffering=0) as report:
            report.write(b" " * REPORT_BYTES)
            os.fsync(handle)
        for old_report in Path(name).parent.glob(f"{prefix}*.report"):
            if restarts > 0 and not old_report.name.endswith(suffix):
                old_report.unlink(missing_ok=True)
        yield Path(name)
    finally:
        with suppress(OSError):
            os.unlink(name)


def read_rank_report(path: Path) -> RankReport:
    """Read a report; fields that rank 0 has not written have their defaults."""
    with suppress(OSError, ValueError):
        text = path.read_text("ascii")
        code, progress = text[:PROGRESS_OFFSET].strip(), text[PROGRESS_OFFSET:].split() or ("0", "0")
        exit_code = int(code) if code else None
        return RankReport(exit_code, int(progress[0]), float(progress[1]), len(progress) > 2)
    return RankReport()


def write_exit_code(code: int) -> bool:
    """Write an exit code to the report if `mu2mpi launch` started this run; return whether it did."""
    try:
        return _write_at(0, f"{code}\n")
    except OSError as error:
        problem = f"mu2mpi: cannot write the report {error.filename}: {error.strerror}"
        print(f"{problem}. Use an --output in a folder that all nodes share.", file=sys.stderr, flush=True)
        return False


def write_progress(rounds_done: int, round_seconds: float, has_new_rounds: bool = False) -> None:
    """Write the progress of rank 0 to the report if `mu2mpi launch` started this run."""
    with suppress(OSError):
        # Without new rounds, the last field is not overwritten.
        saved = "saved\n" if has_new_rounds else ""
        _write_at(PROGRESS_OFFSET, f"{rounds_done:<20} {round_seconds:<20.6g} {saved}")


def _write_at(offset: int, text: str) -> bool:
    if not (path := os.environ.get(RANK_REPORT_VARIABLE)):
        return False
    # Others who can write to the folder may have replaced the report by a link to a file of this user.
    with open(os.open(path, os.O_RDWR | os.O_NOFOLLOW), "r+b", buffering=0) as report:
        report.seek(offset)
        report.write(text.encode())
        if offset == 0:
            os.fsync(report.fileno())
    return True
