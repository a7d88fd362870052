"""Signals: a first one asks a run to stop, a second Ctrl-C and those outside of a run end the program."""

import os
import signal
import subprocess
import sys

import pytest

from mu2mpi.core.signals import STOP_SIGNALS, installed_signal_handlers, recording_stop_requests


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_first_signal_is_noted_and_a_second_interrupt_ends(number):
    before = [signal.getsignal(each) for each in STOP_SIGNALS]
    with recording_stop_requests() as requests:
        assert not requests.pending
        os.kill(os.getpid(), number)
        assert requests.pending
        if number == signal.SIGINT:
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
    assert [signal.getsignal(each) for each in STOP_SIGNALS] == before


def test_what_was_ignored_stays_ignored():
    seen, before = [], signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        with installed_signal_handlers(
            dict.fromkeys((signal.SIGUSR1, signal.SIGUSR2), lambda number, _: seen.append(number))
        ):
            os.kill(os.getpid(), signal.SIGUSR1)
            os.kill(os.getpid(), signal.SIGUSR2)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == [signal.SIGUSR2]


ENDS = """
import os, signal, sys
from pathlib import Path
from mu2mpi.core.files import write_atomically
from mu2mpi.core.signals import exiting_on_signals
def chunks():
    yield b"half"
    os.kill(os.getpid(), int(sys.argv[2]))
signal.signal(signal.SIGINT, signal.default_int_handler)
with exiting_on_signals():
    write_atomically(Path(sys.argv[1]), chunks())
"""


@pytest.mark.parametrize(("number", "word"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated")])
def test_a_program_that_ends_at_once_leaves_no_unfinished_file(number, word, tmp_path):
    command = [sys.executable, "-c", ENDS, tmp_path / "a", str(int(number))]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (child.returncode, child.stderr) == (-number, f"mu2mpi: {word}\n")
    assert list(tmp_path.iterdir()) == []
