"""Files to which runs append what observers hear: whole lines, from several ranks and starts."""

import contextlib
import fcntl
import json
import math
import os
import re
import stat
import sys
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from time import sleep
from typing import Any, ClassVar

from mu2mpi.errors import InputError
from mu2mpi.execution.progress import duration_text, headline
from mu2mpi.results.observer import Evaluation, Observer, Start
from mu2mpi.results.schema import Result

LOCK_SECONDS, PATIENCE = 0.01, 1.0
"""How often to ask for the lock of a file, and how long all lines of a log may wait for it together."""

TESTS = "losses and scores are computed without noise on a share of the data file, and are not private"


class Log(Observer):
    """Appends a line for each event to a file that other runs may write at the same time.

    A line that cannot be written, such as on a full disk, is lost with a warning, and the run goes on. What a
    line `begins` with tells a log from the user's other files.
    """

    begins: ClassVar[re.Pattern[bytes]]

    def __init__(self, path: Path | str) -> None:
        self._path, self._has_warned = Path(path), False
        self._patience = PATIENCE

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

    def check(self, taken: Iterable[Path] = ()) -> None:
        """Raise InputError unless the file can be written, which is made if need be.

        It may be none of those that are taken, and none that is there and no log.
        """
        if os.path.realpath(self._path) in map(os.path.realpath, taken):
            raise InputError(f"{self._path} is what the command itself writes; name another file as its log")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._opened() as handle:
                start = os.read(handle, 64) if stat.S_ISREG(os.fstat(handle).st_mode) else b""
            if start.strip() and not self.begins.match(start):
                raise InputError(f"{self._path} is there and is no log of this kind; name another file")
        except OSError as error:
            raise InputError(f"cannot write the log {self._path}: {error.strerror}") from None

    def _note(self, event: str, words: str, facts: dict[str, Any]) -> None:
        try:
            # A name of a file need not be text.
            self._append(f"{self._line(event, words, facts)}\n".encode(errors="backslashreplace"))
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
            self._lock(handle)
            size = os.fstat(handle).st_size
            if size and os.pread(handle, 1, size - 1) != b"\n":
                # A machine that crashed may have left a part of a line.
                line = b"\n" + line
            written = os.write(handle, line)
            if written < len(line):
                os.ftruncate(handle, size)
                raise OSError(None, "there is no space left for a whole line")

    def _lock(self, handle: int) -> None:
        """Wait for other jobs, but not for ever: without a lock, lines may at worst get into each other.

        On some network file systems there are none.
        """
        with contextlib.suppress(OSError):
            while True:
                try:
                    return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if self._patience <= 0:
                        return None
                self._patience -= LOCK_SECONDS
                sleep(LOCK_SECONDS)


class PlainLog(Log):
    """Lines to read, each with the time and the name of the run."""

    begins = re.compile(rb"\d{4}-\d\d-\d\dT\S+ ")

    def _line(self, event: str, words: str, facts: dict[str, Any]) -> str:
        return f"{_now()} {self._start.name}: {words}"


class JsonLog(Log):
    """One JSON object a line; numbers that are not finite are null."""

    begins = re.compile(rb"\{")

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
