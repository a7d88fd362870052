"""Ranks in one process, a thread each, and a record of all that crosses the wire between them."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from threading import Lock
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from mu2mpi.parallel import Communicator

Answer = TypeVar("Answer")


class OutOfStepError(RuntimeError):
    """A rank waits for others that do not take part."""


class _AbandonedError(RuntimeError):
    """Another rank has failed."""


class Meeting:
    """Where ranks meet: one acts at a time, until it waits for the others; faster than a barrier for all."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._turns = [Lock() for _ in range(size)]
        # The first rank need not wait to begin.
        for turn in self._turns[1:]:
            turn.acquire()
        # A rank may write for its next exchange while another still reads for this one.
        self._brought: list[list[Any]] = [[None] * size, [None] * size]
        self._exchanges = [0] * size
        self._left = [False] * size
        self._is_broken = False

    def wait(self, rank: int) -> None:
        """Return when it is this rank's turn."""
        self._turns[rank].acquire()
        if self._is_broken:
            raise _AbandonedError

    def exchange(self, rank: int, array: Any) -> list[Any]:
        """Return what each rank brought, once all have brought theirs."""
        self._exchanges[rank] = number = self._exchanges[rank] + 1
        brought = self._brought[number % 2]
        brought[rank] = array
        self._pass_on(rank)
        self.wait(rank)
        if min(self._exchanges) < number:
            raise OutOfStepError("a rank waits for others that do not take part")
        return brought

    def leave(self, rank: int) -> None:
        """Take no part in what follows."""
        self._left[rank] = True
        self._pass_on(rank)

    def abort(self) -> None:
        """End all ranks as they wait."""
        if self._is_broken:
            return
        self._is_broken = True
        for turn in self._turns:
            if turn.locked():
                turn.release()

    def _pass_on(self, rank: int) -> None:
        for other in (*range(rank + 1, self.size), *range(rank + 1)):
            if not self._left[other]:
                self._turns[other].release()
                return


class RecordedRank(Communicator):
    """One of several ranks of this process.

    Attributes
    ----------
    sent, received : list
        Copies of all arrays and objects that left this rank and that reached it, in order.
    sent_by : list of str
        The collective that sent each.
    """

    def __init__(self, rank: int, meeting: Meeting) -> None:
        self.rank, self.size = rank, meeting.size
        self.sent: list[Any] = []
        self.received: list[Any] = []
        self.sent_by: list[str] = []
        self.meeting = meeting

    def allreduce(self, send: NDArray[np.int64], receive: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sum of all ranks' arrays, on every rank."""
        return self._sum(send, receive, "allreduce")

    def reduce(self, send: NDArray[np.int64], receive: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
        """Return the sum of all ranks' arrays on rank 0, and None elsewhere."""
        if self.rank == 0 and receive is not None:
            return self._sum(send, receive, "reduce")
        self._exchange(send, "reduce")
        return None

    def _sum(self, send: NDArray[np.int64], receive: NDArray[np.int64], collective: str) -> NDArray[np.int64]:
        np.sum(self._exchange(send, collective), axis=0, out=receive)
        self.received.append(receive.copy())
        return receive

    def bcast(self, array: NDArray[np.float64]) -> None:
        """Overwrite the array on every rank with that of rank 0."""
        message = self._exchange(array if self.rank == 0 else None, "bcast")[0]
        if self.rank != 0:
            np.copyto(array, message)
            self.received.append(message)

    def share(self, thing: Any) -> Any:
        """Return rank 0's object on every rank."""
        message = self._exchange(thing if self.rank == 0 else None, "share")[0]
        if self.rank != 0:
            self.received.append(message)
        return deepcopy(message)

    def gather(self, thing: Any) -> list[Any] | None:
        """Return the list of all ranks' objects on rank 0, and None elsewhere."""
        everyones = self._exchange(thing, "gather")
        return deepcopy(everyones) if self.rank == 0 else None

    def allgather(self, thing: Any) -> list[Any]:
        """Return the list of all ranks' objects on every rank."""
        self.received.append(deepcopy(self._exchange(thing, "allgather")))
        return deepcopy(self.received[-1])

    def wait_for_all(self) -> None:
        """Return when all ranks have called this."""
        self._exchange(None, "barrier")

    def _refuse(self, *_: object) -> NoReturn:
        raise RuntimeError("the audit does not record what leaves a rank this way")

    part = _refuse  # type: ignore[assignment]

    def _exchange(self, thing: Any, collective: str) -> list[Any]:
        if thing is not None:
            thing = thing.copy() if isinstance(thing, np.ndarray) else deepcopy(thing)
            self.sent.append(thing)
            self.sent_by.append(collective)
        return self.meeting.exchange(self.rank, thing)


def on_ranks(size: int, action: Callable[[RecordedRank], Answer]) -> list[Answer]:
    """Run an action on some ranks of this process, which take turns, and return their answers.

    An exception on any rank ends all of them, and is raised here: an OutOfStepError if not all take part in
    the same exchanges.
    """
    meeting = Meeting(size)

    def act(rank: int) -> Answer:
        try:
            meeting.wait(rank)
            answer = action(RecordedRank(rank, meeting))
            meeting.leave(rank)
            return answer
        except BaseException:
            meeting.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        try:
            answers = [pool.submit(act, rank) for rank in range(size)]
            errors = [error for answer in answers if (error := answer.exception()) is not None]
        except BaseException:
            meeting.abort()
            raise
    for error in sorted(errors, key=lambda error: isinstance(error, _AbandonedError)):
        raise error
    return [answer.result() for answer in answers]
