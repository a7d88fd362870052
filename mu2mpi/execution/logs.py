"""Logs of runs: what observers hear, appended to a file by Python's `logging`."""

import contextlib
import json
import logging
import math
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mu2mpi.execution.progress import duration_text, headline
from mu2mpi.results.observer import Evaluation, Observer, Start
from mu2mpi.results.schema import Result

TESTS = "losses and scores are computed without noise on a share of the data file, and are not private"


class _TextFormatter(logging.Formatter):
    """The time, the name of the run, and what happened."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


class _JsonFormatter(_TextFormatter):
    """One JSON object a line; numbers that are not finite are null."""

    def format(self, record: logging.LogRecord) -> str:
        told = {"event": record.__dict__["event"], "time": self.formatTime(record), "run": record.name}
        return json.dumps(_finite({**told, **record.__dict__["facts"]}), allow_nan=False)


class _Handler(logging.FileHandler):
    """Appends to a file that other runs may write, too; a line that cannot be written is lost."""

    has_warned = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Warn once, as the run goes on without its log."""
        if not self.has_warned:
            words = f"cannot write the log {self.baseFilename}: {sys.exception()}; the run goes on without"
            print(f"mu2mpi: warning: {words}", file=sys.stderr, flush=True)
        self.has_warned = True

    def close(self) -> None:
        """Close the file, without an error for what a full disk does not take."""
        with contextlib.suppress(OSError):
            super().close()


class LogFile(Observer):
    """Appends a line for each event of a run to a file, as text or as JSON objects."""

    def __init__(self, path: Path | str, as_json: bool = False) -> None:
        # A name of a file need not be text.
        self._handler = _Handler(path, encoding="utf-8", errors="backslashreplace", delay=True)
        text = _TextFormatter("%(asctime)s %(name)s: %(message)s")
        self._handler.setFormatter(_JsonFormatter() if as_json else text)

    def _note(self, event: str, words: str, facts: dict[str, Any]) -> None:
        record = logging.LogRecord(self._start.name, logging.INFO, "", 0, words, None, None)
        record.__dict__.update(event=event, facts=facts)
        self._handler.handle(record)

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

    def on_close(self) -> None:
        """Close the file; a later line opens it again."""
        self._handler.close()

    def on_finish(self, result: Result) -> None:
        """Note the end."""
        seconds = float(result.history.elapsed_seconds[-1])
        self._note("finish", f"done, took {duration_text(seconds)}", {"elapsed_seconds": seconds})
        self._handler.close()


def _finite(thing: Any) -> Any:
    """Return what JSON can hold: None for numbers that are not finite."""
    if isinstance(thing, dict):
        return {name: _finite(value) for name, value in thing.items()}
    return None if isinstance(thing, float) and not math.isfinite(thing) else thing
