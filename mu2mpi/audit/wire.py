"""Ranks in one process, a thread each, and a record of all that crosses the wire between them."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from threading import Barrier, BrokenBarrierError
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from mu2mpi.parallel import Communicator

__all__ = ["RecordedRank", "on_ranks"]

Answer = TypeVar("Answer")

PATIENCE_SECONDS = 300.0
"""Ranks that wait longer for another one do so for ever: they do not agree on what comes next."""


class RecordedRank(Communicator):
    """One of several ranks of this process, with what servers need of a communicator.

    Attributes
    ----------
    sent : list of ndarray
        Copies of all that left this rank, in order.
    received : list of ndarray
        Copies of all that reached it.
    """

    def __init__(self, rank: int, meeting: Barrier, brought: list[list[Any]]) -> None:
        self.rank, self.size = rank, meeting.parties
        self.sent: list[NDArray[Any]] = []
        self.received: list[NDArray[Any]] = []
        self._meeting = meeting
        self._brought = brought
        self._parity = 0

    def allreduce(self, send: NDArray[np.int64], receive: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sum of all ranks' arrays, on every rank."""
        return self._receive_sum(self._exchange(send), receive)

    def reduce(self, send: NDArray[np.int64], receive: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
        """Return the sum of all ranks' arrays on rank 0, and None elsewhere."""
        everyones = self._exchange(send)
        if self.rank != 0 or receive is None:
            return None
        return self._receive_sum(everyones, receive)

    def bcast(self, array: NDArray[np.float64]) -> None:
        """Overwrite the array on every rank with that of rank 0."""
        message = self._exchange(array if self.rank == 0 else None)[0]
        if self.rank != 0:
            np.copyto(array, message)
            self.received.append(message)

    def _exchange(self, array: NDArray[Any] | None) -> list[Any]:
        """Return what each rank brought, once all have brought theirs."""
        if array is not None:
            array = array.copy()
            self.sent.append(array)
        # A rank may write for its next exchange while another still reads for this one.
        self._parity = 1 - self._parity
        brought = self._brought[self._parity]
        brought[self.rank] = array
        self._meeting.wait()
        return brought

    def _receive_sum(self, arrays: list[Any], receive: NDArray[np.int64]) -> NDArray[np.int64]:
        np.copyto(receive, arrays[0])
        for array in arrays[1:]:
            receive += array
        self.received.append(receive.copy())
        return receive

    def _refuse(self, *_: object) -> NoReturn:
        raise RuntimeError("the audit does not record what leaves a rank this way")

    share = gather = allgather = wait_for_all = split = call = _refuse  # type: ignore[assignment]


def on_ranks(size: int, action: Callable[[RecordedRank], Answer]) -> list[Answer]:
    """Run an action on some ranks of this process side by side and return their answers.

    An exception on any rank ends all of them, and is raised here.

    Parameters
    ----------
    size : int
        How many ranks.
    action : callable
        Takes the rank on which it runs.

    Raises
    ------
    BrokenBarrierError
        If not all ranks take part in the same exchanges.
    """
    meeting = Barrier(size, timeout=PATIENCE_SECONDS)
    brought: list[list[Any]] = [[None] * size, [None] * size]

    def act(rank: int) -> Answer:
        try:
            return action(RecordedRank(rank, meeting, brought))
        except BaseException:
            meeting.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        answers = [pool.submit(act, rank) for rank in range(size)]
        try:
            wait(answers)
        except BaseException:
            meeting.abort()
            raise
    errors = [error for answer in answers if (error := answer.exception()) is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, BrokenBarrierError)):
        raise error
    return [answer.result() for answer in answers]
