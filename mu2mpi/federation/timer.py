"""Where the time of a run goes, by phase and rank."""

from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from mu2mpi.core.parallel import Communicator

PHASES = ("compute", "noise", "step", "data", "moving", "waiting", "evaluation")


class Stopwatch:
    """The `seconds` before each lap by phase; messages, and waits for other ranks, are "moving"."""

    def __init__(self, rounds: int = 1) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        # One rank takes the lists of all: about 1,000 rounds tell waiting from moving.
        self._share, self._before = 1000 / rounds, 0.0
        self._messages: list[float] = []  # what those of some rounds took
        self.restart()

    def restart(self) -> None:
        """Forget the time since the last lap."""
        self._last = perf_counter()

    def lap(self, phase: str) -> None:
        """Count the time since the last lap as spent in this phase."""
        now = perf_counter()
        self.seconds[phase] += now - self._last
        self._last = now

    def end_round(self, t: int) -> None:
        """Note what the messages of round t took."""
        # Multiples of the golden ratio fill the unit interval evenly, in step with no rhythm of the rounds.
        if t * 0.6180339887498949 % 1 < self._share:
            self._messages.append(self.seconds["moving"] - self._before)
        self._before = self.seconds["moving"]

    def by_rank(self, communicator: Communicator) -> dict[str, NDArray[np.float64]]:
        """Return seconds by phase on rank 0; what messages take beyond the fastest rank is waiting."""
        mine = list(self.seconds.values()), self._messages
        seconds, messages = zip(*(communicator.gather(mine) or [mine]), strict=True)
        of_phases = dict(zip(PHASES, np.array(seconds).T, strict=True))
        took = np.array(messages)
        total = took.sum(axis=1)
        share = np.divide(took.min(axis=0).sum(), total, out=np.ones_like(total), where=total > 0)
        of_phases["waiting"] = of_phases["moving"] * (1 - share)
        of_phases["moving"] *= share
        return of_phases
