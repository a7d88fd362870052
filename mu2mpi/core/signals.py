"""Signal handlers: stop a run with a checkpoint, or end the program at once."""

import faulthandler
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType

from mu2mpi.core.files import remove_temporaries

# Signals that stop a run with a checkpoint; SIGINT is Ctrl-C
STOP_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGINT)
STOP_NOTICE = (
    b"\nmu2mpi: stopping before the next round, with a checkpoint; press Ctrl-C again to end at once\n"
)

SignalHandler = Callable[[int, FrameType | None], object]


class StopRequests:
    """Signal handler that records a request to stop; a second Ctrl-C is left to the previous handler."""

    def __init__(self) -> None:
        self.pending = False  # whether a signal has requested this rank to stop
        self._on_second_interrupt = signal.getsignal(signal.SIGINT) or signal.SIG_DFL

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        """Record a stop signal."""
        self.pending = True
        if signum == signal.SIGINT:
            signal.signal(signal.SIGINT, self._on_second_interrupt)
            if os.isatty(2):
                with suppress(OSError):
                    os.write(2, STOP_NOTICE)


@contextmanager
def recording_stop_requests() -> Iterator[StopRequests]:
    """Context manager: record `STOP_SIGNALS` instead of terminating."""
    requests = StopRequests()
    with installed_signal_handlers(dict.fromkeys(STOP_SIGNALS, requests)):
        yield requests


@contextmanager
def exiting_on_signals() -> Iterator[None]:
    """Remove temporary files before a stop signal kills the program, unless the caller handles the signal."""
    # Python loses a KeyboardInterrupt that is raised in the callback of a weak reference.
    defaults = signal.SIG_DFL, signal.default_int_handler
    unhandled = [signum for signum in STOP_SIGNALS if signal.getsignal(signum) in defaults]
    with installed_signal_handlers(dict.fromkeys(unhandled, exit_signal_handler)):
        yield


def exit_signal_handler(signum: int, frame: FrameType | None) -> None:
    """Remove temporary files and let the signal kill the process."""
    remove_temporaries()
    with suppress(OSError):
        os.write(2, b"mu2mpi: interrupted\n" if signum == signal.SIGINT else b"mu2mpi: terminated\n")
    # MPICH's mpirun ignores the exit code of a rank that has not initialised MPI, while others wait for it.
    signal.signal(signum, signal.SIG_DFL)
    signal.raise_signal(signum)


@contextmanager
def default_signal_actions() -> Iterator[None]:
    """Let stop signals kill the process at once, also in a call of MPI, where no Python handler runs."""
    with (
        installed_signal_handlers(dict.fromkeys(STOP_SIGNALS, signal.SIG_DFL)),
        open(os.devnull, "wb") as null,
    ):
        # MPICH replaces the default action of SIGUSR1 by none, but calls a handler in C, here this one: it
        # restores the previous action and raises the signal again.
        faulthandler.register(signal.SIGUSR1, null, all_threads=False, chain=True)
        try:
            yield
        finally:
            faulthandler.unregister(signal.SIGUSR1)


@contextmanager
def installed_signal_handlers(
    handlers: Mapping[signal.Signals, SignalHandler | signal.Handlers],
) -> Iterator[None]:
    """Install signal handlers inside a with block, except for signals that the parent process ignores."""
    if threading.current_thread() is not threading.main_thread():
        # Python allows signal handlers in the main thread only.
        yield
        return
    installed = {n: handler for n, handler in handlers.items() if signal.getsignal(n) != signal.SIG_IGN}
    previous = {signum: signal.signal(signum, handler) for signum, handler in installed.items()}
    try:
        yield
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)
