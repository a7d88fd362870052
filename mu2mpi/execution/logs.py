"""Files to which runs append what observers hear: whole lines, from several ranks and starts."""

import contextlib
import fcntl
import json
import math
import os
import sys
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mu2mpi.errors import InputError
from mu2mpi.execution.progress import duration_text, headline
from mu2mpi.results.observer import Evaluation, Observer, Start
from mu2mpi.results.schema import Result

TESTS = "losses and scores are computed without noise on a share of the data file, and are not private"


class Log(Observer):
    """Appends a line for each event to a file that other runs may write at the same time.

    A line that cannot be written, such as on a full disk, is lost with a warning, and the run goes on.
    """

    def __init__(self, path: Path | str) -> None:
        self._path, self._has_warned = Path(path), False

    @abstractmethod
    def _line(self, event: str, words: str, facts: dict[str, Any]) -> str:
        """Return what the file says of an event."""

    def on_start(self, start: Start) -> None:
        """Note what is about to run."""
        self._start = start
        facts = {
            "settings": start.experiment.settings(),
            "rounds": start.schedule.rounds,
            "machines": start.schedule.machines,
            "parameters": start.schedule.d,
            "rounds_done": start.rounds_done,
            "ranks": start.ranks,
            **({"note": TESTS} if start.warns_of_tests else {}),
        }
        self._note("start", headline(start) + (f"; {TESTS}" if start.warns_of_tests else ""), facts)

    def on_evaluation(self, evaluation: Evaluation) -> None:
        """Note what was measured."""
        words = f"round {evaluation.round} of {self._start.schedule.rounds}: {evaluation}"
        self._note("evaluation", words, asdict(evaluation))

    def on_checkpoint(self, rounds_done: int) -> None:
        """Note what was kept."""
        self._note("checkpoint", f"checkpoint after round {rounds_done}", {"round": rounds_done})

    def on_finish(self, result: Result) -> None:
        """Note the end."""
        seconds = float(result.history.elapsed_seconds[-1])
        self._note("finish", f"done, took {duration_text(seconds)}", {"elapsed_seconds": seconds})

    def check(self) -> None:
        """Raise InputError unless the file can be written, which is made if need be."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._opened():
                pass
        except OSError as error:
            raise InputError(f"cannot write the log {self._path}: {error.strerror}") from None

    def _note(self, event: str, words: str, facts: dict[str, Any]) -> None:
        try:
            self._append(f"{self._line(event, words, facts)}\n".encode())
        except OSError as error:
            if not self._has_warned:
                words = f"cannot write the log {self._path}: {error.strerror}; the run goes on without"
                print(f"mu2mpi: warning: {words}", file=sys.stderr, flush=True)
            self._has_warned = True

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        # Not to wait for the reader of a pipe.
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK
        handle = os.open(self._path, flags, 0o666)
        try:
            yield handle
        finally:
            os.close(handle)

    def _append(self, line: bytes) -> None:
        with self._opened() as handle:
            # Only where there are no locks, on some network file systems, lines may get into each other.
            with contextlib.suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX)
            size = os.fstat(handle).st_size
            if size and os.pread(handle, 1, size - 1) != b"\n":
                # A machine that crashed may have left a part of a line.
                line = b"\n" + line
            written = os.write(handle, line)
            if written < len(line):
                os.ftruncate(handle, size)
                raise OSError(None, "there is no space left for a whole line")


class PlainLog(Log):
    """Lines to read, each with the time and the name of the run."""

    def _line(self, event: str, words: str, facts: dict[str, Any]) -> str:
        return f"{_now()} {self._start.name}: {words}"


class JsonLog(Log):
    """One JSON object a line; numbers that are not finite are null."""

    def _line(self, event: str, words: str, facts: dict[str, Any]) -> str:
        told = {"event": event, "time": _now(), "run": self._start.name, **facts}
        return json.dumps(_finite(told), allow_nan=False)


def _finite(thing: Any) -> Any:
    """Return what JSON can hold: of numbers that are not finite, none."""
    if isinstance(thing, dict):
        return {name: _finite(value) for name, value in thing.items()}
    return None if isinstance(thing, float) and not math.isfinite(thing) else thing


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
