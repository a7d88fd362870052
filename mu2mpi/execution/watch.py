"""When a run writes a checkpoint, and when it stops: agreed by all ranks."""

import enum
from collections.abc import Callable
from time import monotonic

import numpy as np

from mu2mpi.core.parallel import Communicator

LOOK_SECONDS = 0.2  # About how often the ranks ask each other whether to save or to stop
FASTER = 4  # Largest growth of the number of rounds between two looks, as rounds may become slower
# When the first checkpoint is due; the wait doubles up to `every`, so that what dies young is not lost
FIRST_SECONDS = 5.0


class Verdict(enum.Enum):
    """What all ranks do before the next round."""

    GO_ON = enum.auto()
    SAVE = enum.auto()
    STOP = enum.auto()


class Watch:
    """Decides together with the other ranks, every so many rounds, whether to save or to stop.

    `is_asked` tells whether this rank is to stop; `every` is in seconds by the clock of rank 0.
    """

    def __init__(self, communicator: Communicator, is_asked: Callable[[], bool], every: float) -> None:
        self._communicator, self._is_asked, self._every = communicator, is_asked, every
        self._wait = min(FIRST_SECONDS, every)
        self._next_round, self._stride = 0, 1
        self._looked = self._saved = monotonic()
        self._sums = np.zeros(3, dtype=np.int64)

    def look(self, t: int) -> Verdict:
        """Say what all ranks do before round t; every rank must ask before every round."""
        if t < self._next_round:
            return Verdict.GO_ON
        now = monotonic()
        seconds_a_round = max(1e-7, (now - self._looked) / self._stride)
        stride = max(1, min(int(LOOK_SECONDS / seconds_a_round), FASTER * self._stride))
        # Rank 0 alone has a say in when to save and when to look again.
        by_clock = [now - self._saved >= self._wait, stride] if self._communicator.rank == 0 else [0, 0]
        mine = np.array([self._is_asked(), *by_clock], dtype=np.int64)
        stop, save, self._stride = self._communicator.allreduce(mine, self._sums).tolist()
        self._looked, self._next_round = now, t + self._stride
        if save:
            self._saved, self._wait = now, min(2 * self._wait, self._every)
        return Verdict.STOP if stop else Verdict.SAVE if save else Verdict.GO_ON
