"""Ranks in one process, a thread each, and a record of all that crosses the wire between them."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from copy import deepcopy
from threading import Lock
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from mu2mpi.core.parallel import Communicator

Answer = TypeVar("Answer")
Integers = NDArray[np.int64]
_LEFT = object()  # what a rank brings that takes no part in further exchanges


class OutOfStepError(RuntimeError):
    """A rank waits for others that do not take part."""


class _AbandonedError(RuntimeError):
    """Another rank has failed."""


class Meeting:
    """Where ranks meet: each acts in its turn until it waits for the others; faster than a barrier."""

    def __init__(self, size: int) -> None:
        self.size, self._is_broken = size, False
        self._turns = [Lock() for _ in range(size)]
        # The first rank need not wait to begin.
        for turn in self._turns[1:]:
            turn.acquire()
        self._brought: list[Any] = []

    def wait(self, rank: int) -> None:
        """Return when it is this rank's turn."""
        self._turns[rank].acquire()
        if self._is_broken:
            raise _AbandonedError

    def pass_on(self, rank: int) -> None:
        """Let the next rank act."""
        self._turns[(rank + 1) % self.size].release()

    def exchange(self, rank: int, thing: Any) -> list[Any]:
        """Return what each rank brought, once all have brought theirs."""
        if rank == 0:
            # Others may still read what was brought before.
            self._brought = [None] * self.size
        brought = self._brought
        brought[rank] = thing
        self.pass_on(rank)
        self.wait(rank)
        if 0 < sum(one is _LEFT for one in brought) < self.size:
            raise OutOfStepError("a rank waits for others that do not take part")
        return brought

    def abort(self) -> None:
        """End all ranks as they wait."""
        for turn in () if self._is_broken else self._turns:
            self._is_broken = True
            if turn.locked():
                turn.release()


class RecordedRank(Communicator):
    """One of several ranks of this process, with copies of all that left it and that reached it."""

    def __init__(self, rank: int, meeting: Meeting) -> None:
        self.rank, self.size, self.meeting = rank, meeting.size, meeting
        self.sent, self.received = list[Any](), list[Any]()

    def forget(self) -> None:
        """Begin a new record."""
        self.sent, self.received = [], []

    def allreduce(self, send: Integers, receive: Integers) -> Integers:
        return self._sum(self._exchange(send), receive)

    def reduce(self, send: Integers, receive: Integers | None) -> Integers | None:
        everyones = self._exchange(send)
        return None if self.rank != 0 or receive is None else self._sum(everyones, receive)

    def _sum(self, everyones: list[Integers], receive: Integers) -> Integers:
        np.sum(everyones, axis=0, out=receive)
        self.received.append(receive.copy())
        return receive

    def bcast(self, array: NDArray[np.float64]) -> None:
        np.copyto(array, self._of_first(array))

    def share(self, thing: Any) -> Any:
        return deepcopy(self._of_first(thing))

    def gather(self, thing: Any) -> list[Any] | None:
        everyones = self._exchange(thing)
        return deepcopy(everyones) if self.rank == 0 else None

    def _refuse(self, *_: object) -> NoReturn:
        raise RuntimeError("the audit does not record what leaves a rank this way")

    part = allgather = wait_for_all = _refuse  # type: ignore[assignment]

    def _of_first(self, thing: Any) -> Any:
        message = self._exchange(thing if self.rank == 0 else None)[0]
        if self.rank != 0:
            self.received.append(message)
        return message

    def _exchange(self, thing: Any) -> list[Any]:
        if thing is not None:
            thing = thing.copy() if isinstance(thing, np.ndarray) else deepcopy(thing)
            self.sent.append(thing)
        return self.meeting.exchange(self.rank, thing)


def on_ranks(size: int, action: Callable[[RecordedRank], Answer]) -> list[Answer]:
    """Run an action on ranks of this process, which take turns; an error on any rank is raised."""
    meeting = Meeting(size)

    def act(rank: int) -> Answer:
        try:
            meeting.wait(rank)
            answer = action(RecordedRank(rank, meeting))
            meeting.exchange(rank, _LEFT)
            meeting.pass_on(rank)
            return answer
        except BaseException:
            meeting.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        try:
            answers = [pool.submit(act, rank) for rank in range(size)]
            wait(answers)
        except BaseException:
            meeting.abort()
            raise
    errors = [error for answer in answers if (error := answer.exception()) is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, _AbandonedError)):
        raise error
    return [answer.result() for answer in answers]
