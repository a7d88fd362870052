"""What signals do: they ask a run to keep its state and stop, or they end the program."""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

from mu2mpi.core.files import remove_unfinished

CHECKPOINT_SECONDS = 300.0  # Seconds between two checkpoints unless the user says otherwise
# Those that ask a run to stop; the last is Ctrl-C
SIGNALS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGINT)
FIRST = b"\nmu2mpi: stopping before the next round, with a checkpoint; Ctrl-C again ends at once\n"

Handler = Callable[[int, FrameType | None], object]


class StopRequests:
    """Whether a signal has asked this rank to stop; a second Ctrl-C does what the first would have done."""

    def __init__(self, second: Handler = signal.default_int_handler) -> None:
        self.pending = False
        self._second, self._interrupts = second, 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Take note of a signal; much more might interrupt itself."""
        self.pending = True
        if number != signal.SIGINT:
            return
        self._interrupts += 1
        if self._interrupts > 1:
            self._second(number, frame)
        elif os.isatty(2):
            with suppress(OSError):
                os.write(2, FIRST)


@contextmanager
def stop_requests() -> Iterator[StopRequests]:
    """Take note of `SIGNALS` inside the block instead of dying of them; nested blocks share requests."""
    outer = signal.getsignal(SIGNALS[0])
    if isinstance(outer, StopRequests):
        yield outer
        return
    before = signal.getsignal(signal.SIGINT)
    requests = StopRequests(before) if callable(before) else StopRequests()
    with handling(dict.fromkeys(SIGNALS, requests)):
        yield requests


@contextmanager
def ending_at_once() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end the program inside the block, unless a program around it does otherwise."""
    # Python's own KeyboardInterrupt is lost where it falls into the callback of a weak reference.
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    mine = [number for number, handler in usual.items() if signal.getsignal(number) is handler]
    with handling(dict.fromkeys(mine, end_at_once)):
        yield


def end_at_once(number: int, frame: FrameType | None) -> NoReturn:
    """End this process by a signal, without a file that is not finished."""
    remove_unfinished()
    with suppress(OSError):
        os.write(2, b"mu2mpi: interrupted\n" if number == signal.SIGINT else b"mu2mpi: terminated\n")
    os._exit(128 + number)


@contextmanager
def handling(handlers: Mapping[signal.Signals, Handler]) -> Iterator[None]:
    """Handle signals inside the block, but for those that whoever started the program had it ignore."""
    if threading.current_thread() is not threading.main_thread():
        # Python lets only the main thread handle signals.
        yield
        return
    heard = {number: each for number, each in handlers.items() if signal.getsignal(number) != signal.SIG_IGN}
    before = {number: signal.signal(number, each) for number, each in heard.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
