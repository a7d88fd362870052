"""Start the ranks of a job, see them through, and requeue the job if its run is not finished."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from types import FrameType

from mu2mpi.cluster import slurm, word
from mu2mpi.cluster.launchers import RANK_VARIABLES, carried, find_launcher, say
from mu2mpi.errors import EXIT_INTERRUPTED, InputError
from mu2mpi.files import Identity, identity
from mu2mpi.results.schema import checkpoint_path

ACTIONS = {
    # (how the ranks of a run that is not finished ended, who ended them): what is done with a SLURM job
    ("stopped with a checkpoint", "nobody"): "requeue",
    ("lost after progress", "nobody"): "requeue",
    ("lost without progress", "nobody"): "retry",  # if it started few times, or a node does not answer
    ("stopped with a checkpoint", "the scheduler"): "requeue",
    ("lost after progress", "the scheduler"): "requeue",
    ("lost without progress", "the scheduler"): "requeue",
    ("stopped with a checkpoint", "a person"): "end",
    ("lost after progress", "a person"): "end",
    ("lost without progress", "a person"): "end",
}

LONGEST_STOP = 5.0  # seconds from SIGTERM until a requeue, even if ranks have not stopped yet
FRESH_STARTS = 3  # how often a job starts again after an end without word and without progress


class Outputs:
    """Results and checkpoints of a command; with `overwrite` only a new result counts."""

    def __init__(self, paths: Sequence[Path], overwrite: bool = False) -> None:
        self._results, self._overwrite = {*paths}, overwrite
        self._before = self._now()

    def __bool__(self) -> bool:
        return bool(self._results)

    def folder(self) -> Path:
        """Return the nearest existing folder of those in which the results will lie."""
        lowest = min(self._results, default=Path("result")).parent
        return next(folder for folder in (lowest, *lowest.absolute().parents) if folder.is_dir())

    def have_moved_on(self) -> bool:
        """Return whether there is a result or a checkpoint which was not there before."""
        return any(self._before.get(path) != found for path, found in self._now().items())

    def are_complete(self) -> bool:
        """Return whether all results are there, and no checkpoint of one is left."""
        now = self._now()
        old = {path for path, found in self._before.items() if self._overwrite and now.get(path) == found}
        return bool(self._results) and now.keys() - old == self._results

    def _now(self) -> dict[Path, Identity | None]:
        wanted, there = self._results | {checkpoint_path(path) for path in self._results}, set()
        # A look into the folder instead of one for each of what may be thousands of files.
        for folder in {path.parent for path in self._results}:
            with suppress(OSError):
                there |= wanted & {*folder.iterdir()}
        return {path: identity(path) for path in there}


class StoppedError(Exception):
    """A signal came before the ranks were started."""


class Signals:
    """Takes note of signals and passes them on to the ranks, as SIGUSR1; ends what comes before these."""

    def __init__(self) -> None:
        self.seen: set[int] = set()
        self.may_raise = False
        self._process: subprocess.Popen[bytes] | None = None
        self._late_at = float("inf")

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Take note of a signal."""
        self.seen.add(number)
        if number == signal.SIGTERM:
            self._late_at = min(self._late_at, monotonic() + LONGEST_STOP)
        if self._process is not None:
            self._process.send_signal(signal.SIGUSR1)
        elif self.may_raise:
            raise StoppedError

    def before_ranks(self, action: Callable[[], list[str]]) -> list[str]:
        """Return what an action does that a signal may break off, with StoppedError."""
        self.may_raise = True
        try:
            if self.seen:
                raise StoppedError
            return action()
        finally:
            self.may_raise = False

    def wait_for(
        self, command: Sequence[str], environment: dict[str, str], when_late: Callable[[], object]
    ) -> int:
        """Start ranks, return the code of their launcher; call `when_late` if SIGTERM ends them late."""
        self._process = process = subprocess.Popen(command, env=environment)
        if self.seen:
            process.send_signal(signal.SIGUSR1)
        while process.returncode is None and monotonic() < self._late_at:
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=1)
        if process.returncode is None:
            when_late()
        code = process.wait()
        # As shells give it: more than 128 for a signal.
        return code if code >= 0 else 128 - code


def launch(arguments: Sequence[str], outputs: Outputs, ranks: int, requeues: int, signals: Signals) -> int:
    """Start ``mu2mpi ARGUMENTS`` on this many ranks, see them through, and return the exit code.

    It is what rank 0 left word of, whatever that of the launcher. Signals reach the ranks as SIGUSR1. A SLURM
    job whose run is not finished is dealt with by `ACTIONS`, and requeued at most `requeues` times. Raises
    InputError without a launcher.
    """
    if slurm.restarts() > 0 and outputs.are_complete():
        say("the results are there, from an earlier start of this job")
        return 0
    environment = {**RANK_VARIABLES, **os.environ}
    if os.getuid() == 0:
        environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def goes_on(left: int | None) -> bool:
        return _is_requeued(left, outputs, signals.seen, requeues)

    with word.place_for_word(outputs.folder(), slurm.job_number() or "0", slurm.restarts()) as place:
        environment[word.VARIABLE] = str(place)
        try:
            launcher = signals.before_ranks(lambda: find_launcher(ranks, environment))
        except StoppedError:
            say("stopped by a signal before the ranks were started")
            return EXIT_INTERRUPTED if goes_on(EXIT_INTERRUPTED) else 128 + min(signals.seen)
        except InputError:
            if slurm.nodes_answer():
                raise
            say("no launcher works, but a node of this job does not answer")
            return EXIT_INTERRUPTED if slurm.requeue(requeues) else 1
        words = [sys.executable, "-m", "mu2mpi", *arguments]
        say(f"starting {ranks} ranks: {shlex.join([*launcher, *words])}")
        command = [*launcher, *carried(environment), *words]
        code = signals.wait_for(command, environment, when_late=lambda: goes_on(None))
        left = word.read_word(place)
    if left is None and code in (2, EXIT_INTERRUPTED):
        # Rank 0 has said why it could not leave word.
        left = code
    if left is not None and left != EXIT_INTERRUPTED:
        return left
    if left is None:
        if outputs.have_moved_on() and outputs.are_complete():
            say("the ranks ended without word, but all results are there")
            return 0
        say(f"the ranks ended with code {code} but no word of how the run ended: one, or a node, may be lost")
    return EXIT_INTERRUPTED if goes_on(left) else left or code or 1


def _is_requeued(left: int | None, outputs: Outputs, seen: set[int], limit: int) -> bool:
    """Do with the job around this process what `ACTIONS` says; return whether that requeued it."""
    if slurm.job_number() is None:
        return False
    by = "a person" if signal.SIGINT in seen else "the scheduler" if seen else "nobody"
    if signal.SIGTERM in seen and by != "a person":
        by = slurm.who_ends()
        if by == "a requeue":
            say("this job is in the queue again")
            return False
    lost = "lost after progress" if outputs.have_moved_on() else "lost without progress"
    ended = lost if left is None else "stopped with a checkpoint"
    action = ACTIONS[ended, by]
    if action == "retry":
        can_retry = bool(outputs) and slurm.restarts() < FRESH_STARTS
        action = "requeue" if can_retry or not slurm.nodes_answer() else "end"
    if action == "end":
        why = "it was cancelled" if by == "a person" else "the run has got no further in this start"
        say(f"this job is not put back into the queue: {why}")
    return action == "requeue" and slurm.requeue(limit)
