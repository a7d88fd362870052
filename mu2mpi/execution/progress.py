"""Callbacks that report progress on standard error: a bar, or plain lines."""

import math
import sys
from datetime import timedelta
from time import monotonic
from typing import TextIO

from mu2mpi.core.registry import default_name, lookup
from mu2mpi.results.callbacks import Callback, Evaluation, RunStart

BAR_REFRESH_SECONDS = 0.2  # Smallest interval between two updates of a progress bar
LOG_INTERVAL_SECONDS = 3.0  # Smallest interval between two progress lines, except for the last round


def run_headline(start: RunStart) -> str:
    """Describe the run in one line: data, trust mode, noise, M, T, d, method."""
    experiment, constants, problem = start.experiment, start.constants, start.constants.problem
    method = "" if experiment.method == default_name("methods") else f", by {experiment.method}"
    participation = "" if experiment.participation is None else f" ({experiment.participation})"
    noise = f"rho = {experiment.rho:g}" if constants.mechanism.is_noisy else "no noise"
    if constants.mechanism.is_noisy and constants.mechanism.budget_parameter != "rho":
        noise = f"epsilon = {experiment.target_epsilon:.4g} (delta = {experiment.delta:g})"
    elif experiment.epsilon is not None:
        noise += f" (epsilon = {experiment.epsilon:g}, delta = {experiment.delta:g})"
    resumed = f"; resuming after round {start.rounds_done}" if start.rounds_done else ""
    return (
        f"{experiment.data}, {problem.server} server, {noise}: M = {problem.machines} machines"
        f"{participation}, T = {constants.rounds} rounds, d = {problem.d}{method}{resumed}"
    )


def number_text(number: float) -> str:
    """Format a positive number with at least two digits, without an exponent: 12,345, 3.1 or 0.025."""
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


def duration_text(seconds: float) -> str:
    """Format a duration: 0.01 s, 12 s or 0:02:05."""
    return f"{number_text(seconds)} s" if seconds < 60 else str(timedelta(seconds=round(seconds)))


class LogProgress(Callback):
    """Plain progress lines for logs and pipes, at least `interval` seconds apart except for the last."""

    def __init__(self, stream: TextIO, label: str = "", interval: float = LOG_INTERVAL_SECONDS) -> None:
        self._stream, self._label, self._interval = stream, label, interval

    def _print(self, line: str) -> None:
        # One write per line, so that lines of processes with a common terminal or pipe do not mix.
        self._stream.write(f"{line}\n")
        self._stream.flush()

    def on_start(self, start: RunStart) -> None:
        self._rounds, self._rounds_before = start.constants.rounds, start.rounds_done
        self._started = self._printed = monotonic()
        self._rate_start: tuple[int, float] | None = None  # Round and time since which the rate is measured
        line = run_headline(start)
        self._print(f"{self._label} {start.name}: {line}" if self._label else line)
        if start.experiment.preset is not None and not self._label:
            preset = lookup("presets", start.experiment.preset)
            if advice := preset.advice(start.experiment.chosen_method, start.constants.problem):
                self._print(advice)

    def _print_evaluation(self, evaluation: Evaluation) -> None:
        now, left = monotonic(), self._rounds - evaluation.round
        start_round, start = (self._rate_start if left else None) or (self._rounds_before, self._started)
        rate, text = (evaluation.round - start_round) / max(now - start, 1e-9), ""
        if not left:
            text = f", {number_text(rate)} rounds/s, took {duration_text(evaluation.elapsed_seconds)}"
        elif rate > 0 and now - start >= self._interval:
            self._rate_start = evaluation.round, now
            text = f", {number_text(rate)} rounds/s, {timedelta(seconds=round(left / rate))} left"
        self._print(f"{self._label or ' '} round {evaluation.round} of {self._rounds}: {evaluation}{text}")

    def on_evaluation(self, evaluation: Evaluation) -> None:
        now = monotonic()
        if self._rate_start is None:  # Before, kernels were compiled and data read.
            self._rate_start = evaluation.round, now
        if now - self._printed >= self._interval or evaluation.round == self._rounds:
            self._printed = now
            self._print_evaluation(evaluation)


class BarProgress(LogProgress):
    """Progress bar with rounds per second, time left, rho spent so far, and the latest test loss."""

    def on_start(self, start: RunStart) -> None:
        super().on_start(start)
        self._rho_spent, self._loss_text, self._refreshed = start.constants.rho_spent, "", 0.0
        self._final_evaluation: Evaluation | None = None
        from tqdm.auto import tqdm

        self._bar = tqdm(
            total=self._rounds,
            initial=start.rounds_done,
            unit="round",
            file=self._stream,
            leave=False,
            mininterval=BAR_REFRESH_SECONDS,
            dynamic_ncols=True,
        )

    def on_round(self, t: int) -> None:
        now = monotonic()
        if t == self._rounds_before + 1:
            self._bar.unpause()  # The time left is estimated without the first round, which compiles kernels.
        if now - self._refreshed >= BAR_REFRESH_SECONDS:
            self._refreshed, spent = now, self._rho_spent(t)
            texts = [self._loss_text] * bool(self._loss_text)
            texts += [f"rho spent {spent:.3g}"] * (not math.isnan(spent))
            self._bar.set_postfix_str(", ".join(texts), refresh=False)
        self._bar.update()

    def on_evaluation(self, evaluation: Evaluation) -> None:
        # Without the score, the bar fits into 80 columns.
        self._loss_text, self._refreshed = f"loss {evaluation.loss:.4f}", 0.0
        self._final_evaluation = evaluation if evaluation.round == self._rounds else None

    def on_close(self) -> None:
        self._bar.close()
        if self._final_evaluation is not None:
            self._print_evaluation(self._final_evaluation)


def progress_callback(label: str = "", interval: float = LOG_INTERVAL_SECONDS) -> Callback:
    """Create a progress bar for a terminal or notebook, or else plain lines `interval` seconds apart."""
    stream = sys.stderr
    # Notebooks show bars, although their standard error is not a terminal.
    has_bars = stream.isatty() or "ipykernel" in sys.modules
    return BarProgress(stream, label) if has_bars else LogProgress(stream, label, interval)
