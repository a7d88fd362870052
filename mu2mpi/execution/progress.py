"""How a run tells of itself: a bar on a terminal, a plain line for each evaluation in a log."""

import math
import sys
from datetime import timedelta
from time import monotonic
from typing import Any, TextIO

from mu2mpi.execution.plan import Plan
from mu2mpi.registry import default

REFRESH_SECONDS = 0.2
"""How often a bar is drawn again at most."""


class Progress:
    """What a run reports on rank 0 while it goes on; this one says nothing."""

    def chosen(self, ranks: int, given: int) -> None:
        """Hear that fewer ranks than were given are faster."""

    def start(self, plan: Plan, rounds_done: int) -> None:
        """Hear of the run before its first round, or before the one after a checkpoint."""

    def advance(self) -> None:
        """Hear that a round is over."""

    def measured(self, t: int, loss: float, score: str, spent: float) -> None:
        """Hear the loss, the score in words and the rho spent once round t is over."""

    def finish(self) -> None:
        """Hear that the last round is over."""


def headline(plan: Plan, rounds_done: int) -> str:
    """Say in a line what is about to run."""
    experiment, schedule = plan.experiment, plan.schedule
    method = "" if experiment.method == default("methods") else f", by {experiment.method}"
    going_on = f"; going on after round {rounds_done}" if rounds_done else ""
    who = "" if experiment.participation is None else f" ({experiment.participation})"
    noise = f"rho = {experiment.rho:g}" if schedule.mechanism.is_noisy else "no noise"
    if schedule.mechanism.is_noisy and schedule.mechanism.spends != "rho":
        noise = f"epsilon = {experiment.target_epsilon:.4g} (delta = {experiment.delta:g})"
    elif experiment.epsilon is not None:
        noise += f" (epsilon = {experiment.epsilon:g}, delta = {experiment.delta:g})"
    return (
        f"{experiment.data}, {schedule.server} server, {noise}: M = {schedule.machines} machines{who}, "
        f"T = {schedule.rounds} rounds, d = {schedule.d}{method}{going_on}"
    )


def spent_text(spent: float) -> str:
    """Say how much rho is spent, where that is how releases are accounted for."""
    return "" if math.isnan(spent) else f"rho spent {spent:.3g}, "


class _Printed(Progress):
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def chosen(self, ranks: int, given: int) -> None:
        """Print on how many ranks the run will be."""
        words = f"on {ranks} of {given} ranks, as more would not be faster (--all-ranks takes them all)"
        print(words, file=self._stream, flush=True)


class LogProgress(_Printed):
    """Plain lines, for log files and pipes; at least `interval` seconds lie between two about a run."""

    def __init__(self, stream: TextIO, interval: float = 0.0) -> None:
        super().__init__(stream)
        self._interval = interval

    def start(self, plan: Plan, rounds_done: int) -> None:
        """Print what is about to run."""
        self._rounds, self._before = plan.schedule.rounds, rounds_done
        self._started = self._told = monotonic()
        print(headline(plan, rounds_done), file=self._stream, flush=True)

    def measured(self, t: int, loss: float, score: str, spent: float) -> None:
        """Print what was measured, unless the last line is too young."""
        now = monotonic()
        if now - self._told < self._interval:
            return
        self._told = now
        rate = (t - self._before) / max(now - self._started, 1e-9)
        left = timedelta(seconds=round((self._rounds - t) / rate))
        print(
            f"  round {t} of {self._rounds}: loss {loss:.4f}, {score}, "
            f"{spent_text(spent)}{rate:,.4g} rounds/s, {left} left",
            file=self._stream,
            flush=True,
        )


class TerminalProgress(_Printed):
    """A bar with rounds per second, time left, rho spent so far, and the last measured loss."""

    def start(self, plan: Plan, rounds_done: int) -> None:
        """Print what is about to run and open the bar."""
        from tqdm import tqdm

        print(headline(plan, rounds_done), file=self._stream, flush=True)
        self._spent, self._done = plan.schedule.mechanism.rho_spent, rounds_done
        self._last, self._shown = "", 0.0
        self._bar: Any = tqdm(
            total=plan.schedule.rounds,
            initial=rounds_done,
            unit="round",
            file=self._stream,
            leave=False,
            mininterval=REFRESH_SECONDS,
            dynamic_ncols=True,
        )

    def advance(self) -> None:
        """Move the bar on."""
        self._done += 1
        now = monotonic()
        if now - self._shown >= REFRESH_SECONDS:
            self._shown = now
            spent = spent_text(self._spent(self._done))
            self._bar.set_postfix_str(f"{self._last}{spent}".removesuffix(", "), refresh=False)
        self._bar.update()

    def measured(self, t: int, loss: float, score: str, spent: float) -> None:
        """Show what was measured beside the bar."""
        # Without the score, all of it fits into 80 columns.
        self._last, self._shown = f"loss {loss:.4f}, ", 0.0

    def finish(self) -> None:
        """Take the bar away."""
        self._bar.close()


def for_standard_error(interval: float = 0.0) -> Progress:
    """Return the kind of progress that suits what standard error is; `interval` is that of a log."""
    stream = sys.stderr
    return TerminalProgress(stream) if stream.isatty() else LogProgress(stream, interval)
