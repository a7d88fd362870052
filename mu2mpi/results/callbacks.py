"""What hears how a run goes on: a log, a bar, a live figure, or what the user writes."""

import math
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.core.parallel import Communicator
from mu2mpi.federation.run_constants import RunConstants
from mu2mpi.results.records import score_text
from mu2mpi.results.result import Result


@dataclass(frozen=True)
class Start:
    """A run before its first round, or before the one after a checkpoint; all of it is public.

    Among the constants are M, ``constants.task.machines``, T, ``constants.rounds``, and d,
    ``constants.task.d``; ``constants.rho_spent(t)`` is the rho of everything released until round t.
    """

    name: str  # path of the result, or ``run`` where none is written
    experiment: Experiment  # with machines and rounds filled in
    constants: RunConstants
    rounds_done: int  # of earlier starts: more than 0 where the run goes on from a checkpoint
    ranks: int

    @property
    def warns_of_tests(self) -> bool:
        """Whether losses and scores are people's data: the run is private but for its test set."""
        return self.experiment.tests_on_a_share and self.experiment.seed is None


@dataclass(frozen=True)
class Evaluation:
    """What was measured once round t was over: a row of the history.

    The loss and the score, an accuracy or R^2 as `labels` are ``classes`` or ``numbers``, are means over so
    many samples of the test set. `rho_spent` is NaN for methods that are not accounted for by rho.
    """

    round: int
    loss: float
    score: float
    labels: str
    test_samples: int
    rho_spent: float
    elapsed_seconds: float

    def __str__(self) -> str:
        spent = "" if math.isnan(self.rho_spent) else f", rho spent {self.rho_spent:.3g}"
        return f"loss {self.loss:.4f}, {score_text(self.score, self.labels)}{spent}"


class Observer:
    """Hears on rank 0 how a run goes on; override what you want to hear, as all of this does nothing.

    Nothing that it hears depends on private data but through what is released, except for elapsed times, and
    for test results where the test set is a share of one's own file (`Start.warns_of_tests`). An exception
    in it ends the run on every rank with an `InputError` whose cause it is; the same call goes on from the
    last checkpoint.

    Examples
    --------
    >>> class Losses(mu2mpi.Observer):
    ...     def on_start(self, start):
    ...         self.losses = []
    ...     def on_evaluation(self, evaluation):
    ...         self.losses.append(evaluation.loss)
    >>> heard = Losses()
    >>> result = mu2mpi.run({"machines": 10, "server": "trusted"}, observers=[heard])
    >>> heard.losses == list(result.history.test_loss)
    True
    """

    def on_start(self, start: Start) -> None:
        """Hear of the run before its first round, or before the one after a checkpoint."""

    def on_round(self, t: int) -> None:
        """Hear that round t is over: often, so be quick; an exception counts from the next evaluation on."""

    def on_evaluation(self, evaluation: Evaluation) -> None:
        """Hear what was measured."""

    def on_checkpoint(self, rounds_done: int) -> None:
        """Hear that the state after so many rounds is on the disk; a run that is asked to stop ends so."""

    def on_close(self) -> None:
        """Hear that there are no more rounds, be they all done, broken off or to be continued."""

    def on_finish(self, result: Result) -> None:
        """Hear the result, without its diagnostics, once its file is written."""


class Audience:
    """Observers of a run, on rank 0 alone; once one has failed, they hear no more than `on_close`."""

    def __init__(self, observers: Sequence[Observer] = (), name: str = "run") -> None:
        self._observers, self._name = observers, name
        # Rounds may be short: only those are told who listen.
        self._counting = [each for each in observers if type(each).on_round is not Observer.on_round]
        self._started: list[Observer] = []
        self._failure: tuple[str, BaseException] | None = None

    def _tell(self, observer: Observer, event: str, *told: Any) -> None:
        if self._failure is not None:
            return
        try:
            getattr(observer, event)(*told)
        except (Exception, SystemExit) as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            said = traceback.format_exception_only(error)[-1].strip()
            who, where = type(observer).__name__, f"{place.filename}, line {place.lineno}"
            self._failure = f"the observer {who} failed: {said} ({where})", error

    def tell(self, event: str, told: object) -> None:
        """Let all hear an event, such as ``on_evaluation``."""
        for observer in self._observers:
            self._tell(observer, event, told)

    def start(self, start: Start) -> None:
        """Tell what is about to run."""
        for observer in self._observers:
            self._tell(observer, "on_start", replace(start, name=self._name))
            if self._failure is None:
                self._started.append(observer)

    def round(self, t: int) -> None:
        """Tell those who listen that a round is over."""
        for observer in self._counting:
            self._tell(observer, "on_round", t)

    def finish(self, result: Result, communicator: Communicator) -> Result:
        """Tell the result, but for what is not covered by its guarantee, and return it as it is."""
        if communicator.rank == 0:
            self.tell("on_finish", replace(result, diagnostics=None, class_counts=None))
        self.check(communicator)
        return result

    def close(self) -> None:
        """Tell all who heard of the start that no more rounds come, also where one has failed."""
        first = self._failure
        for observer in self._started:
            self._failure = None
            self._tell(observer, "on_close")
            first = first or self._failure
        self._failure = first

    def check(self, communicator: Communicator) -> None:
        """Raise InputError on every rank if an observer has failed; on rank 0, with what it raised."""
        message, error = self._failure or (None, None)
        # What is kept of an error keeps all that it passed through: open files of data, say.
        self._failure = None
        message = communicator.share(message)
        if message is not None:
            raise InputError(message) from error
