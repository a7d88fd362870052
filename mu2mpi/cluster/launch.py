"""Start the ranks of a job, see them through, and see to it that the job goes on if they were lost."""

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

from mu2mpi.cluster import own_job
from mu2mpi.cluster.launchers import RANK_VARIABLES, carried, find_launcher, say
from mu2mpi.cluster.outputs import Outputs
from mu2mpi.cluster.word import VARIABLE, place_for_word, read_word
from mu2mpi.errors import EXIT_INTERRUPTED, InputError

LONGEST_STOP = 5.0
"""Seconds from SIGTERM until SLURM is asked to start the job again, even if ranks have not stopped yet."""

FRESH_STARTS = 3
"""How often a job may start again after an end without word although its run has got no further."""


class StoppedError(Exception):
    """A signal came before the ranks were started."""


class Signals:
    """Takes note of signals and passes them on to the ranks, as SIGUSR1; ends what comes before these."""

    def __init__(self) -> None:
        self.seen: set[int] = set()
        self.may_raise = False
        self._process: subprocess.Popen[bytes] | None = None
        self._terminated: float | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Take note of a signal."""
        self.seen.add(number)
        if number == signal.SIGTERM:
            self._terminated = self._terminated or monotonic()
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
        process = subprocess.Popen(command, env=environment)
        self._process = process
        if self.seen:
            process.send_signal(signal.SIGUSR1)
        while self._terminated is None or monotonic() < self._terminated + LONGEST_STOP:
            with suppress(subprocess.TimeoutExpired):
                return _shell_code(process.wait(timeout=1))
        when_late()
        return _shell_code(process.wait())


def _shell_code(code: int) -> int:
    """Return an exit code as shells give it, which for a signal is more than 128."""
    return code if code >= 0 else 128 - code


def launch(arguments: Sequence[str], outputs: Outputs, ranks: int, requeues: int, signals: Signals) -> int:
    """Start ``mu2mpi ARGUMENTS`` on this many ranks, see them through, and return how the run ended.

    SIGUSR1, SIGUSR2, SIGTERM and Ctrl-C are passed on to the ranks as SIGUSR1. The exit code is what rank 0
    left word of; an end without word is none, whatever the launcher says. A job of SLURM that stopped with a
    checkpoint, or whose ranks were lost, is put back into the queue where it makes sense, at most `requeues`
    times. Raises InputError if no launcher starts ranks that find each other.
    """
    if own_job.restarts() > 0 and outputs.are_complete():
        say("the results are there, from an earlier start of this job")
        return 0
    environment = {**RANK_VARIABLES, **os.environ}
    if os.getuid() == 0:
        environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def go_on(word: int | None) -> bool:
        return _shall_go_on(word, outputs, signals.seen) and own_job.requeue(requeues)

    folders = [outputs.folder(), Path()]
    with place_for_word(folders, own_job.job_number() or "0", own_job.restarts()) as place:
        environment[VARIABLE] = str(place)
        try:
            launcher = signals.before_ranks(lambda: find_launcher(ranks, environment))
        except StoppedError:
            say("stopped by a signal before the ranks were started")
            return EXIT_INTERRUPTED if go_on(EXIT_INTERRUPTED) else 128 + min(signals.seen)
        except InputError:
            if own_job.nodes_answer():
                raise
            say("no launcher works, but a node of this job does not answer")
            return EXIT_INTERRUPTED if own_job.requeue(requeues) else 1
        words = [sys.executable, "-m", "mu2mpi", *arguments]
        say(f"starting {ranks} ranks: {shlex.join([*launcher, *words])}")
        command = [*launcher, *carried(environment), *words]
        code = signals.wait_for(command, environment, when_late=lambda: go_on(None))
        word = read_word(place)
    return _end(code, word, outputs, go_on)


def _end(code: int, word: int | None, outputs: Outputs, go_on: Callable[[int | None], bool]) -> int:
    """Return the exit code, after what `launch` promises to do about a run that has not ended for good."""
    if word is None and code in (2, EXIT_INTERRUPTED):
        # Rank 0 has said why it could not leave word.
        word = code
    if word is not None and word != EXIT_INTERRUPTED:
        return word
    if word is None:
        if outputs.have_moved_on() and outputs.are_complete():
            say("the ranks ended without word, but all results are there")
            return 0
        say(f"the ranks ended with code {code} but no word of how the run ended: one, or a node, may be lost")
    return EXIT_INTERRUPTED if go_on(word) else word or code or 1


def _shall_go_on(word: int | None, outputs: Outputs, seen: set[int]) -> bool:
    """Return whether this job is to be put back into the queue."""
    if own_job.job_number() is None or signal.SIGINT in seen:
        return False
    if signal.SIGTERM in seen:
        facts = own_job.facts_of_job()
        if own_job.was_requeued(facts):
            say("this job is in the queue again")
            return False
        if not own_job.was_preempted(facts):
            say("this job was cancelled, and is not put back into the queue")
            return False
        return True
    if word == EXIT_INTERRUPTED or seen or outputs.have_moved_on():
        return True
    if outputs and own_job.restarts() < FRESH_STARTS:
        return True
    if not own_job.nodes_answer():
        say("a node of this job does not answer")
        return True
    say("the run has got no further than when this job started: not put back into the queue")
    return False
