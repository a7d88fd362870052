"""Timer of a run: seconds by phase, such as computation or communication, and by rank."""

from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from mu2mpi.core.arrays import FloatArray

if TYPE_CHECKING:
    from mu2mpi.core.parallel import Communicator

TIMED_PHASES = ("compute", "noise", "step", "data", "communication", "waiting", "evaluation")
EXPECTED_TIMED_ROUNDS = 1000  # rounds, on average, whose communication times of all ranks are compared
GOLDEN_RATIO = 0.6180339887498949


class Timer:
    """Seconds of one rank by phase; until `seconds_by_rank`, "communication" includes waiting."""

    def __init__(self, rounds: int = 1) -> None:
        self.phase_seconds = dict.fromkeys(TIMED_PHASES, 0.0)
        self._sampled_share, self._communication_before = EXPECTED_TIMED_ROUNDS / rounds, 0.0
        self._sampled_seconds: list[float] = []  # communication of each sampled round
        self.restart()

    def restart(self) -> None:
        """Set the start of the next phase to the current time."""
        self._last_time = perf_counter()

    def record(self, phase: str) -> None:
        """Add the seconds since the last record or restart to a phase."""
        now = perf_counter()
        self.phase_seconds[phase] += now - self._last_time
        self._last_time = now

    def record_rounds(self, noise_seconds: float, step_seconds: float) -> None:
        """Add the seconds since the last record to noise, steps and computation; without communication."""
        self.record("compute")
        self.phase_seconds["compute"] -= noise_seconds + step_seconds
        self.phase_seconds["noise"] += noise_seconds
        self.phase_seconds["step"] += step_seconds

    def end_round(self, t: int) -> None:
        """Store the communication seconds of round t, if it is one of the sampled rounds."""
        # Multiples of the golden ratio fill the unit interval evenly, in step with no rhythm of the rounds.
        if t * GOLDEN_RATIO % 1 < self._sampled_share:
            self._sampled_seconds.append(self.phase_seconds["communication"] - self._communication_before)
        self._communication_before = self.phase_seconds["communication"]

    def seconds_by_rank(self, communicator: "Communicator") -> dict[str, FloatArray]:
        """Return seconds by phase and rank on rank 0; communication beyond the fastest rank is waiting."""
        own = list(self.phase_seconds.values()), self._sampled_seconds
        seconds, sampled = zip(*(communicator.gather(own) or [own]), strict=True)
        by_phase = dict(zip(TIMED_PHASES, np.array(seconds).T, strict=True))
        by_round = np.array(sampled)
        sums = by_round.sum(axis=1)
        transfer = np.divide(by_round.min(axis=0).sum(), sums, out=np.ones_like(sums), where=sums > 0)
        by_phase["waiting"] = by_phase["communication"] * (1 - transfer)
        by_phase["communication"] *= transfer
        return by_phase
