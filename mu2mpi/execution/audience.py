"""Several observers of a run as one, of which an exception becomes one of all ranks."""

import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from mu2mpi.errors import InputError
from mu2mpi.parallel import Communicator
from mu2mpi.results.observer import Evaluation, Observer, Start
from mu2mpi.results.schema import Result


class Audience:
    """Observers of a run, on rank 0 alone; once one has failed, they hear no more than `on_close`."""

    def __init__(self, observers: Sequence[Observer] = (), name: str = "run") -> None:
        self._observers, self._name = observers, name
        # Rounds may be short: only those are told who listen.
        self._counting = [each for each in observers if type(each).on_round is not Observer.on_round]
        self._started: list[Observer] = []
        self._failure: tuple[str, BaseException] | None = None

    def _tell(self, tell: Callable[[Observer], Any], observers: Sequence[Observer]) -> None:
        for observer in observers:
            if self._failure is not None:
                return
            try:
                tell(observer)
            except (Exception, SystemExit) as error:
                place = traceback.extract_tb(error.__traceback__)[-1]
                said = traceback.format_exception_only(error)[-1].strip()
                self._failure = (
                    f"the observer {type(observer).__name__} failed: {said} "
                    f"({place.filename}, line {place.lineno})",
                    error,
                )

    def start(self, start: Start) -> None:
        """Tell what is about to run."""
        named = replace(start, name=self._name)

        def begin(each: Observer) -> None:
            each.on_start(named)
            self._started.append(each)

        self._tell(begin, self._observers)

    def round(self, t: int) -> None:
        """Tell that a round is over."""
        self._tell(lambda each: each.on_round(t), self._counting)

    def evaluation(self, evaluation: Evaluation) -> None:
        """Tell what was measured."""
        self._tell(lambda each: each.on_evaluation(evaluation), self._observers)

    def checkpoint(self, rounds_done: int) -> None:
        """Tell what was kept."""
        self._tell(lambda each: each.on_checkpoint(rounds_done), self._observers)

    def finish(self, result: Result, communicator: Communicator) -> Result:
        """Tell the result, but for what is not covered by its guarantee, and return it as it is."""
        if communicator.rank == 0:
            told = replace(result, diagnostics=None, class_counts=None)
            self._tell(lambda each: each.on_finish(told), self._observers)
        self.check(communicator)
        return result

    def close(self) -> None:
        """Tell all who heard of the start that no more rounds come, also where one has failed."""
        first = self._failure
        for observer in self._started:
            self._failure = None
            self._tell(lambda each: each.on_close(), [observer])
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
