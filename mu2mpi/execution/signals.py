"""When a run is asked to keep its state: by signals, and how often by the clock."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

CHECKPOINT_SECONDS = 300.0
"""Seconds between two checkpoints unless the user says otherwise."""

SIGNALS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM)


class StopRequests:
    """Whether a signal has asked this rank to stop."""

    def __init__(self) -> None:
        self.pending = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Take note of a signal; anything more might interrupt itself."""
        self.pending = True


@contextmanager
def stop_requests() -> Iterator[StopRequests]:
    """Take note of SIGUSR1, SIGUSR2 and SIGTERM inside the block instead of dying of them.

    A block inside of another has the same requests: one that came while modules were imported, say,
    still counts when the run begins.
    """
    outer = signal.getsignal(SIGNALS[0])
    if isinstance(outer, StopRequests):
        yield outer
        return
    requests = StopRequests()
    if threading.current_thread() is not threading.main_thread():
        # Python lets only the main thread handle signals.
        yield requests
        return
    before = {number: signal.signal(number, requests) for number in SIGNALS}
    try:
        yield requests
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
