"""MPI ranks as threads of one process, and a record of all messages between them."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from copy import deepcopy
from threading import Barrier, BrokenBarrierError
from typing import Any, NoReturn, TypeVar

import numpy as np

from mu2mpi.core.arrays import FloatArray, IntArray
from mu2mpi.core.parallel import Communicator

RankOutcome = TypeVar("RankOutcome")
_FINISHED_CONTRIBUTION = object()  # contribution of a rank that takes no part in further exchanges


class RecordedRank(Communicator):
    """Rank on a thread of this process, with copies of all messages that the rank sent and received."""

    def __init__(self, rank: int, barrier: Barrier, contributions: list[Any]) -> None:
        self.rank, self.size = rank, barrier.parties
        self._barrier, self._contributions = barrier, contributions
        self.sent, self.received = list[Any](), list[Any]()

    def clear_record(self) -> None:
        """Clear the record of sent and received messages."""
        self.sent, self.received = [], []

    def allreduce(self, send: IntArray, receive: IntArray) -> IntArray:
        return self._sum_contributions(self._exchange(send), receive)

    def reduce(self, send: IntArray, receive: IntArray | None) -> IntArray | None:
        contributions = self._exchange(send)
        return None if self.rank != 0 or receive is None else self._sum_contributions(contributions, receive)

    def _sum_contributions(self, contributions: list[IntArray], receive: IntArray) -> IntArray:
        np.sum(contributions, axis=0, out=receive)
        self.received.append(receive.copy())
        return receive

    def bcast(self, array: FloatArray) -> None:
        np.copyto(array, self._broadcast_from_rank_0(array))

    def bcast_object(self, value: Any) -> Any:
        return deepcopy(self._broadcast_from_rank_0(value))

    def gather(self, value: Any) -> list[Any] | None:
        contributions = self._exchange(value)
        return deepcopy(contributions) if self.rank == 0 else None

    def _reject_collective(self, *_: object) -> NoReturn:
        raise RuntimeError("the audit does not record this collective")

    split = allgather = barrier = _reject_collective  # type: ignore[assignment]

    def _broadcast_from_rank_0(self, value: Any) -> Any:
        message = self._exchange(value if self.rank == 0 else None)[0]
        if self.rank != 0:
            self.received.append(message)
        return message

    def _exchange(self, value: Any) -> list[Any]:
        if value is not None:
            value = value.copy() if isinstance(value, np.ndarray) else deepcopy(value)
            self.sent.append(value)
        return self.exchange(value)

    def exchange(self, value: Any) -> list[Any]:
        """Contribute a value to a collective, and return the contributions of all ranks; not recorded."""
        self._contributions[self.rank] = value
        self._barrier.wait()
        contributions = self._contributions.copy()
        self._barrier.wait()  # until all ranks have read them
        if 0 < sum(entry is _FINISHED_CONTRIBUTION for entry in contributions) < self.size:
            raise RuntimeError("a rank waits for others that take no part in the exchange")
        return contributions


def run_on_ranks(size: int, action: Callable[[RecordedRank], RankOutcome]) -> list[RankOutcome]:
    """Run an action on `size` rank threads, and return the results; raise an error of any rank."""
    barrier, contributions = Barrier(size), [None] * size

    def run_action(number: int) -> RankOutcome:
        try:
            rank = RecordedRank(number, barrier, contributions)
            result = action(rank)
            rank.exchange(_FINISHED_CONTRIBUTION)
            return result
        except BaseException:
            barrier.abort()  # so that waiting ranks raise BrokenBarrierError
            raise

    with ThreadPoolExecutor(size) as pool:
        try:
            futures = [pool.submit(run_action, rank) for rank in range(size)]
            wait(futures)
        except BaseException:
            barrier.abort()
            raise
    errors = [error for future in futures if (error := future.exception()) is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, BrokenBarrierError)):
        raise error
    return [future.result() for future in futures]
