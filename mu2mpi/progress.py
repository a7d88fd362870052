"""How a run tells of itself: a bar on a terminal, a plain line for each evaluation in a log."""

import sys
from time import monotonic
from typing import Any, TextIO

from mu2mpi.algorithm.schedule import Schedule
from mu2mpi.experiment import Experiment

__all__ = ["LogProgress", "Progress", "TerminalProgress", "for_standard_error"]


class Progress:
    """What a run reports on rank 0 while it goes on; this one says nothing."""

    def start(self, experiment: Experiment, schedule: Schedule, rounds_done: int) -> None:
        """Hear of the run before its first round, or before the one after a checkpoint."""

    def advance(self) -> None:
        """Hear that a round is over."""

    def measured(self, t: int, loss: float, accuracy: float, spent: float) -> None:
        """Hear the loss (nats), the accuracy and the rho spent once round t is over."""

    def finish(self) -> None:
        """Hear that the last round is over."""


def headline(experiment: Experiment, schedule: Schedule, rounds_done: int) -> str:
    """Say in a line what is about to run."""
    going_on = f"; going on after round {rounds_done}" if rounds_done else ""
    noise = "no noise" if schedule.sigma == 0 else f"rho = {schedule.rho:g}"
    return (
        f"{experiment.data}, {schedule.server} server, {noise}: M = {schedule.machines} machines, "
        f"T = {schedule.rounds} rounds, d = {schedule.d}{going_on}"
    )


class LogProgress(Progress):
    """Plain lines, for log files and pipes.

    Parameters
    ----------
    stream : TextIO
        Where the lines go.
    interval : float, optional
        Seconds that must lie between two lines about the same run.
    """

    def __init__(self, stream: TextIO, interval: float = 0.0) -> None:
        self._stream = stream
        self._interval = interval
        self._rounds = 0
        self._told = 0.0

    def start(self, experiment: Experiment, schedule: Schedule, rounds_done: int) -> None:
        """Print what is about to run."""
        self._rounds = schedule.rounds
        self._told = monotonic()
        print(headline(experiment, schedule, rounds_done), file=self._stream, flush=True)

    def measured(self, t: int, loss: float, accuracy: float, spent: float) -> None:
        """Print what was measured, unless the last line is too young."""
        if monotonic() - self._told < self._interval:
            return
        self._told = monotonic()
        line = (
            f"  round {t} of {self._rounds}: loss {loss:.4f}, accuracy {accuracy:.1%}, rho spent {spent:.3g}"
        )
        print(line, file=self._stream, flush=True)


class TerminalProgress(Progress):
    """A bar with the last measured loss and accuracy."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._bar: Any = None

    def start(self, experiment: Experiment, schedule: Schedule, rounds_done: int) -> None:
        """Print what is about to run and open the bar."""
        from tqdm import tqdm

        print(headline(experiment, schedule, rounds_done), file=self._stream, flush=True)
        self._bar = tqdm(
            total=schedule.rounds,
            initial=rounds_done,
            unit="round",
            file=self._stream,
            leave=False,
            mininterval=0.2,
        )

    def advance(self) -> None:
        """Move the bar on."""
        self._bar.update()

    def measured(self, t: int, loss: float, accuracy: float, spent: float) -> None:
        """Show what was measured beside the bar."""
        self._bar.set_postfix_str(f"loss {loss:.4f}, accuracy {accuracy:.1%}, rho spent {spent:.3g}")

    def finish(self) -> None:
        """Take the bar away."""
        self._bar.close()


def for_standard_error(interval: float = 0.0) -> Progress:
    """Return the kind of progress that suits what standard error is; `interval` is that of a log."""
    stream = sys.stderr
    return TerminalProgress(stream) if stream.isatty() else LogProgress(stream, interval)
