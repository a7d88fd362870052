"""Callbacks during a run, such as progress bars, and the events that they receive."""

import math
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import CollectiveInputError, InputError
from mu2mpi.core.parallel import Communicator
from mu2mpi.federation.run_constants import RunConstants
from mu2mpi.results.records import format_score
from mu2mpi.results.result import Result


@dataclass(frozen=True)
class RunStart:
    """Event before the first round of a run, or of a resumed run; contains public data only.

    ``constants.problem.machines`` is M, ``constants.rounds`` is T and ``constants.problem.d`` is d, the
    number of model parameters; ``constants.rho_spent(t)`` is the rho spent by the messages of rounds 1 to t.
    """

    name: str  # path of the result file, or ``run`` for a run without one
    experiment: Experiment  # with machines and rounds filled in
    constants: RunConstants
    rounds_done: int  # completed before this start; positive if the run resumes from a checkpoint
    ranks: int  # number of MPI ranks

    @property
    def has_private_test_set(self) -> bool:
        """Whether test losses and scores of a private run reveal an unprotected share of its data."""
        return self.experiment.has_unprotected_test_set and self.experiment.seed is None


@dataclass(frozen=True)
class Evaluation:
    """Test loss and score of the model at the end of a round: one row of the history."""

    round: int  # t, from 1
    loss: float  # mean over the test samples
    score: float  # accuracy in [0, 1] for classification, R^2 for regression
    label_kind: str  # ``classes`` (classification) or ``numbers`` (regression)
    test_samples: int  # number of test samples used
    rho_spent: float  # by the messages so far; NaN for mechanisms that are not accounted for by rho
    elapsed_seconds: float

    def __str__(self) -> str:
        spent = "" if math.isnan(self.rho_spent) else f", rho spent {self.rho_spent:.3g}"
        return f"loss {self.loss:.4f}, {format_score(self.score, self.label_kind)}{spent}"


class Callback:
    """Base class of callbacks, which are called on rank 0 during a run; every method does nothing by default.

    Callbacks receive released values and public constants only, except for elapsed times and, if the test set
    is a share of the user's own file (`RunStart.has_private_test_set`), test results. An exception in a
    callback ends the run on every rank with an `InputError` caused by it; the same call to `mu2mpi.run`
    resumes from the last checkpoint.

    Examples
    --------
    >>> class Losses(mu2mpi.Callback):
    ...     def on_start(self, start):
    ...         self.losses = []
    ...     def on_evaluation(self, evaluation):
    ...         self.losses.append(evaluation.loss)
    >>> callback = Losses()
    >>> result = mu2mpi.run({"machines": 10, "server": "trusted"}, callbacks=[callback])
    >>> callback.losses == list(result.history.test_loss)
    True
    """

    def on_start(self, start: RunStart) -> None:
        """Handle the start of the run, before its first round or the first round after a checkpoint."""

    def on_round(self, t: int) -> None:
        """Handle the end of round t, quickly; exceptions are raised at the next evaluation."""

    def on_evaluation(self, evaluation: Evaluation) -> None:
        """Handle the loss and score of an evaluation on the test set."""

    def on_checkpoint(self, rounds_done: int) -> None:
        """Handle a new checkpoint file after `rounds_done` rounds; an interrupted run ends with one."""

    def on_close(self) -> None:
        """Handle the end of the rounds, whether the run is complete, failed or interrupted."""

    def on_finish(self, result: Result) -> None:
        """Handle the result of a complete run, without diagnostics, after its file was written."""


def check_callbacks(callbacks: Sequence[Callback]) -> None:
    """Raise InputError unless all are callbacks."""
    if wrong := [callback for callback in callbacks if not isinstance(callback, Callback)]:
        raise InputError(f"callbacks must derive from mu2mpi.Callback, got {type(wrong[0]).__name__}.")


class CallbackList:
    """Callbacks of a run on rank 0; after an exception in one of them, only `on_close` is called."""

    def __init__(self, callbacks: Sequence[Callback] = (), name: str = "run") -> None:
        self._callbacks, self._name = callbacks, name
        # A round may take microseconds: call only the callbacks that override on_round.
        self._round_callbacks = [c for c in callbacks if type(c).on_round is not Callback.on_round]
        self._started_callbacks: list[Callback] = []
        self._failure: tuple[str, BaseException] | None = None  # message and exception of the first failure

    def _call_method(self, callback: Callback, method: str, *arguments: Any) -> None:
        if self._failure is not None:
            return
        try:
            getattr(callback, method)(*arguments)
        except (Exception, SystemExit) as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            reason = traceback.format_exception_only(error)[-1].strip()
            reason = f"{reason} ({frame.filename}, line {frame.lineno})"
            self._failure = f"the callback {type(callback).__name__} failed: {reason}", error

    def notify(self, method: str, event: object) -> None:
        """Call one method, such as ``on_evaluation``, of all callbacks with an event."""
        for callback in self._callbacks:
            self._call_method(callback, method, event)

    def on_start(self, start: RunStart) -> None:
        """Call `on_start` of all callbacks, with the name of the run filled in."""
        for callback in self._callbacks:
            self._call_method(callback, "on_start", replace(start, name=self._name))
            if self._failure is None:
                self._started_callbacks.append(callback)

    def on_round(self, t: int) -> None:
        """Call `on_round` of the callbacks that override it, after round t."""
        for callback in self._round_callbacks:
            self._call_method(callback, "on_round", t)

    def on_finish(self, result: Result, communicator: Communicator) -> Result:
        """Call `on_finish` of all callbacks with the public part of a result, and return the whole result."""
        if communicator.rank == 0:
            self.notify("on_finish", replace(result, diagnostics=None))
        self.raise_failure(communicator)
        return result

    def on_close(self) -> None:
        """Call `on_close` of all callbacks whose `on_start` succeeded, also after a failure."""
        first_failure = self._failure
        for callback in self._started_callbacks:
            self._failure = None
            self._call_method(callback, "on_close")
            first_failure = first_failure or self._failure
        self._failure = first_failure

    def raise_failure(self, communicator: Communicator) -> None:
        """Raise CollectiveInputError if a callback failed, caused on rank 0 by its exception."""
        message, error = self._failure or (None, None)
        # A stored exception keeps the objects of its frames alive, such as open data files.
        self._failure = None
        message = communicator.bcast_object(message)
        if message is not None:
            raise CollectiveInputError(message) from error
