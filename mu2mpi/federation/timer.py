"""Time of a run by phase and rank."""

from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from mu2mpi.core.parallel import Communicator

PHASES = ("compute", "noise", "step", "data", "communication", "waiting", "evaluation")
MEAN_SAMPLED_ROUNDS = 1000  # rounds, on average, whose communication times of all ranks are compared
GOLDEN_RATIO = 0.6180339887498949


class Timer:
    """Seconds of one rank by phase; until `seconds_by_rank`, "communication" includes waiting."""

    def __init__(self, rounds: int = 1) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self._sampled_share, self._communication_before = MEAN_SAMPLED_ROUNDS / rounds, 0.0
        self._sampled_seconds: list[float] = []  # communication of each sampled round
        self.restart()

    def restart(self) -> None:
        """Start the next phase now."""
        self._last_time = perf_counter()

    def record(self, phase: str) -> None:
        """Add the time since the last record to a phase."""
        now = perf_counter()
        self.seconds[phase] += now - self._last_time
        self._last_time = now

    def end_round(self, t: int) -> None:
        """Note the communication time of round t, if the round is sampled."""
        # Multiples of the golden ratio fill the unit interval evenly, in step with no rhythm of the rounds.
        if t * GOLDEN_RATIO % 1 < self._sampled_share:
            self._sampled_seconds.append(self.seconds["communication"] - self._communication_before)
        self._communication_before = self.seconds["communication"]

    def seconds_by_rank(self, communicator: Communicator) -> dict[str, NDArray[np.float64]]:
        """Return seconds by phase and rank on rank 0; communication beyond the fastest rank is waiting."""
        own = list(self.seconds.values()), self._sampled_seconds
        seconds, sampled = zip(*(communicator.gather(own) or [own]), strict=True)
        by_phase = dict(zip(PHASES, np.array(seconds).T, strict=True))
        by_round = np.array(sampled)
        total = by_round.sum(axis=1)
        share = np.divide(by_round.min(axis=0).sum(), total, out=np.ones_like(total), where=total > 0)
        by_phase["waiting"] = by_phase["communication"] * (1 - share)
        by_phase["communication"] *= share
        return by_phase
