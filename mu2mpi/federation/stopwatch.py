"""Where the time goes, by phase, at the cost of one clock reading a phase."""

from time import perf_counter

PHASES = ("compute", "noise", "communication", "evaluation")


class Stopwatch:
    """Add up the seconds between laps, in `seconds` under the name of the phase that ends there."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self._last = perf_counter()

    def restart(self) -> None:
        """Forget the time since the last lap."""
        self._last = perf_counter()

    def lap(self, phase: str) -> None:
        """Count the time since the last lap as spent in this phase."""
        now = perf_counter()
        self.seconds[phase] += now - self._last
        self._last = now
