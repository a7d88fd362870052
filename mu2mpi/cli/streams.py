"""Standard output and standard error, which may be closed or full, or have no reader any more."""

import io
import os
import select
import sys
from contextlib import suppress
from typing import Any


class Output(io.FileIO):
    """Takes all that is written, and remembers why some of it could not be."""

    failure: OSError | None = None

    def write(self, data: Any) -> int:
        """Write what can be written; the rest is lost."""
        try:
            while (written := super().write(data)) is None:
                select.select([], [self], [])  # of a terminal, say, that another program made not to wait
        except OSError as error:
            self.failure = self.failure or error
            return len(data)
        return written


def open_outputs() -> None:
    """Make standard output and error take all that is written, but for those of a program around us."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # Otherwise the next file that is opened would get its number, and what libraries print.
            os.open(os.devnull, os.O_RDONLY)
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is getattr(sys, f"__{name}__"):
            with suppress(AttributeError, OSError):
                stream.flush()
            buffer = io.BufferedWriter(Output(number, "wb", closefd=False))
            encoding, lines = getattr(stream, "encoding", "utf-8"), number == 2 or os.isatty(number)
            stream = io.TextIOWrapper(buffer, encoding, line_buffering=lines)
            setattr(sys, name, stream)
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that cannot show a letter gets a question mark instead of an error.
            stream.reconfigure(errors="replace")


def lost_output() -> OSError | None:
    """Return why some of standard output is lost, if it is."""
    sys.stdout.flush()
    return getattr(getattr(getattr(sys.stdout, "buffer", None), "raw", None), "failure", None)
