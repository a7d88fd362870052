"""How a run tells of itself: on standard error, by a bar or by plain lines, and in files of logs."""

import json
import math
import sys
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic
from typing import Any, TextIO

from mu2mpi.core.registry import default
from mu2mpi.core.text import warn
from mu2mpi.results.callbacks import Evaluation, Observer, Start
from mu2mpi.results.result import Result

REFRESH_SECONDS = 0.2  # How often a bar is drawn again at most
LOG_SECONDS = 3.0  # How often a log hears of a run at most, but for its last round

TESTS = "losses and scores are computed without noise on a share of the data file, and are not private"


def headline(start: Start) -> str:
    """Say in a line what is about to run."""
    experiment, constants, task = start.experiment, start.constants, start.constants.task
    method = "" if experiment.method == default("methods") else f", by {experiment.method}"
    who = "" if experiment.participation is None else f" ({experiment.participation})"
    noise = f"rho = {experiment.rho:g}" if constants.mechanism.is_noisy else "no noise"
    if constants.mechanism.is_noisy and constants.mechanism.spends != "rho":
        noise = f"epsilon = {experiment.target_epsilon:.4g} (delta = {experiment.delta:g})"
    elif experiment.epsilon is not None:
        noise += f" (epsilon = {experiment.epsilon:g}, delta = {experiment.delta:g})"
    resumed = f"; going on after round {start.rounds_done}" if start.rounds_done else ""
    return (
        f"{experiment.data}, {task.server} server, {noise}: M = {task.machines} machines{who}, "
        f"T = {constants.rounds} rounds, d = {task.d}{method}{resumed}"
    )


def number_text(number: float) -> str:
    """Write a number with commas, without an exponent, to at least two digits: 12,345, 3.1 or 0.025."""
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


def duration_text(seconds: float) -> str:
    """Write how long something took: 0.01 s, 12 s or 0:02:05."""
    return f"{number_text(seconds)} s" if seconds < 60 else str(timedelta(seconds=round(seconds)))


class LogProgress(Observer):
    """Plain lines, for log files and pipes, at least `interval` seconds apart but for the last."""

    def __init__(self, stream: TextIO, label: str = "", interval: float = LOG_SECONDS) -> None:
        self._stream, self._label, self._interval = stream, label, interval

    def _print(self, line: str) -> None:
        # In one piece, so that lines of processes with one terminal or pipe do not run together.
        self._stream.write(f"{line}\n")
        self._stream.flush()

    def on_start(self, start: Start) -> None:
        self._rounds, self._before = start.constants.rounds, start.rounds_done
        self._started = self._told = monotonic()
        told = headline(start)
        self._print(f"{self._label} {start.name}: {told}" if self._label else told)

    def _print_measured(self, evaluation: Evaluation) -> None:
        """Print what was measured, and how long the run still takes, or took."""
        rate = (evaluation.round - self._before) / max(monotonic() - self._started, 1e-9)
        left = self._rounds - evaluation.round
        took = f"took {duration_text(evaluation.elapsed_seconds)}"
        time = f"{timedelta(seconds=round(left / rate))} left" if left else took
        self._print(
            f"{self._label or ' '} round {evaluation.round} of {self._rounds}: {evaluation}, "
            f"{number_text(rate)} rounds/s, {time}"
        )

    def on_evaluation(self, evaluation: Evaluation) -> None:
        now = monotonic()
        if now - self._told >= self._interval or evaluation.round == self._rounds:
            self._told = now
            self._print_measured(evaluation)


class BarProgress(LogProgress):
    """A bar with rounds per second, time left, rho spent so far, and the last measured loss."""

    def on_start(self, start: Start) -> None:
        super().on_start(start)
        self._spent, self._last, self._shown = start.constants.rho_spent, "", 0.0
        self._end: Evaluation | None = None
        from tqdm.auto import tqdm

        self._bar = tqdm(
            total=start.constants.rounds,
            initial=start.rounds_done,
            unit="round",
            file=self._stream,
            leave=False,
            mininterval=REFRESH_SECONDS,
            dynamic_ncols=True,
        )

    def on_round(self, t: int) -> None:
        now = monotonic()
        if now - self._shown >= REFRESH_SECONDS:
            self._shown, spent = now, self._spent(t)
            told = [self._last] * bool(self._last) + [f"rho spent {spent:.3g}"] * (spent == spent)
            self._bar.set_postfix_str(", ".join(told), refresh=False)
        self._bar.update()

    def on_evaluation(self, evaluation: Evaluation) -> None:
        # Without the score, all of it fits into 80 columns.
        self._last, self._shown = f"loss {evaluation.loss:.4f}", 0.0
        self._end = evaluation if evaluation.round == self._rounds else None

    def on_close(self) -> None:
        self._bar.close()
        if self._end is not None:
            self._print_measured(self._end)


class LogFile(Observer):
    """Appends each event of a run to a file, as text or JSON; what cannot be written is lost."""

    def __init__(self, path: Path | str, as_json: bool = False) -> None:
        self._path, self._as_json, self._has_warned = Path(path).absolute(), as_json, False

    def _note(self, event: str, words: str, facts: dict[str, Any]) -> None:
        time, run = datetime.now(UTC).isoformat(timespec="milliseconds"), self._start.name
        line = f"{time} {run}: {words}"
        if self._as_json:
            line = json.dumps(_finite({"event": event, "time": time, "run": run, **facts}), allow_nan=False)
        try:
            # A name of a file need not be text. The file may have other writers.
            with open(self._path, "a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(f"{line}\n")
        except OSError as error:
            if not self._has_warned:
                warn(f"cannot write the log {self._path}: {error}; the run goes on without")
            self._has_warned = True

    def on_start(self, start: Start) -> None:
        self._start = start
        facts = {
            "settings": start.experiment.settings(),
            "rounds": start.constants.rounds,
            "machines": start.constants.task.machines,
            "parameters": start.constants.task.d,
            "rounds_done": start.rounds_done,
            "ranks": start.ranks,
            **({"note": TESTS} if start.warns_of_tests else {}),
        }
        self._note("start", headline(start) + (f"; {TESTS}" if start.warns_of_tests else ""), facts)

    def on_evaluation(self, evaluation: Evaluation) -> None:
        words = f"round {evaluation.round} of {self._start.constants.rounds}: {evaluation}"
        self._note("evaluation", words, asdict(evaluation))

    def on_checkpoint(self, rounds_done: int) -> None:
        self._note("checkpoint", f"checkpoint after round {rounds_done}", {"round": rounds_done})

    def on_finish(self, result: Result) -> None:
        seconds = float(result.history.elapsed_seconds[-1])
        self._note("finish", f"done, took {duration_text(seconds)}", {"elapsed_seconds": seconds})


def _finite(thing: Any) -> Any:
    """Return what JSON can hold: None for numbers that are not finite."""
    if isinstance(thing, dict):
        return {name: _finite(value) for name, value in thing.items()}
    return None if isinstance(thing, float) and not math.isfinite(thing) else thing


def advice_on_ranks(result: Result) -> str | None:
    """Return advice on ranks, as many as were busy on average, for all but short runs that mostly waited."""
    seconds = {phase: float(of_ranks.sum()) for phase, of_ranks in result.timing.items()}
    total, idle = sum(seconds.values()), seconds.get("moving", 0.0) + seconds.get("waiting", 0.0)
    ranks = len(next(iter(result.timing.values()), ()))
    if ranks < 2 or total < ranks or idle <= total / 2:
        return None
    busy = max(1, int(ranks * (1 - idle / total)))
    return (
        f"{idle / total:.0%} of the time was communication and waiting: try mpirun -n {busy} for such runs; "
        "the model has the same bits"
    )


def for_standard_error(label: str = "", interval: float = LOG_SECONDS) -> Observer:
    """Return the kind of progress that suits what standard error is; `interval` is that of a log."""
    stream = sys.stderr
    # In a notebook, which shows bars, standard error is no terminal.
    has_bars = stream.isatty() or "ipykernel" in sys.modules
    return BarProgress(stream, label) if has_bars else LogProgress(stream, label, interval)
