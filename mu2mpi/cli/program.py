"""The program: run a command, and end all ranks as they should.

Exit codes: 0 done, 2 bad input, 1 failure, 75 stopped by a signal with a checkpoint written.
"""

import argparse
import errno
import io
import os
import select
import sys
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from typing import Any, NoReturn

from mu2mpi._version import __version__
from mu2mpi.cli.commands import command_names
from mu2mpi.cluster import exit_report
from mu2mpi.core.errors import EXIT_INTERRUPTED, InputError, Interrupted, SharedInputError, SharedOSError
from mu2mpi.core.registry import find, import_files, summary
from mu2mpi.core.suggestions import did_you_mean
from mu2mpi.execution.signals import ending_at_once, stop_requests

DESCRIPTION = "Differentially private federated convex optimisation over MPI (DP-mu^2-FL)."
EXAMPLES = """examples:
  mu2mpi run --rho 8 --seed 1                        a small run on the built-in digits
  mpirun -n 4 mu2mpi run --data mnist --output a.h5  four machines on four ranks
  mpirun -n 2 mu2mpi sweep jobs/tables.toml --output runs/
  mu2mpi table runs/
  mu2mpi plot runs/ -o figure.png
  mu2mpi report runs/
  mu2mpi privacy --epsilon 2 --delta 1e-5            which rho that is

Each command has its own --help."""

IMPORT = (
    "Python file with losses, methods, figures, commands, ... of your own; may be repeated, here or later"
)


class Parser(argparse.ArgumentParser):
    """A parser that raises `InputError` for bad usage, on every rank since all have the same arguments."""

    def error(self, message: str) -> NoReturn:
        """Raise the message, with the command whose help tells more."""
        raise SharedInputError(f"{message}\nSee: {self.prog} --help")

    def refuse(self, unknown: Sequence[str]) -> NoReturn:
        """Say of each option that is not known what it may mean, or else which ones there are."""
        known = [o for action in self._actions for o in action.option_strings if o.startswith("--")]
        words = [word.partition("=")[0] for word in unknown if word.startswith("-")]
        guesses = {word: did_you_mean(word, known) for word in words}
        if words and all(guesses.values()):
            self.error("\n".join(f"{word} is no option here{guess}" for word, guess in guesses.items()))
        self.error(f"unrecognized arguments: {' '.join(unknown)}\nthe options are {', '.join(known)}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            meant = did_you_mean(str(value), map(str, action.choices or ()))
            raise argparse.ArgumentError(action, f"{error.message}{meant}") from None


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    _open_outputs()
    with ending_at_once():
        try:
            return _with_word(_execute(parse(sys.argv[1:] if argv is None else argv)))
        except (InputError, OSError) as error:
            together = isinstance(error, SharedInputError | SharedOSError)
            try:
                os.getcwd()
            except OSError:
                error = InputError(f"{error}\nThe working directory is gone: change to a folder that exists.")
            return _end(f"error: {error}", 2 if isinstance(error, InputError) else 1, together)
        except Interrupted as stop:
            done = f"stopped after round {stop.rounds_done} with a checkpoint"
            return _end(f"{done}; the same command goes on from it", EXIT_INTERRUPTED, together=True)
        except Exception as error:
            # What MPI raises is most often the loss of another rank, and not how the run ends.
            if not type(error).__module__.startswith("mpi4py"):
                exit_report.leave_word(1)
            raise


def _execute(arguments: argparse.Namespace) -> int:
    """Execute a command, which has failed as well if what it was to print is lost, and is in no file."""
    makes_results = hasattr(arguments.command, "outputs")
    # With results, a signal is from here on kept for the run to come, not died of.
    with stop_requests() if makes_results else nullcontext():
        code = arguments.command.execute(arguments) or 0
    sys.stdout.flush()
    lost = getattr(getattr(getattr(sys.stdout, "buffer", None), "raw", None), "failure", None)
    if makes_results or lost is None:
        return code
    if lost.errno == errno.EPIPE:
        # Whoever reads, such as `head`, has what it wants.
        return _with_word(1)
    return _end(f"error: cannot write to standard output: {lost.strerror}", 1, together=False)


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Return the arguments of the command that these words name; no other command adds its own."""
    # Files to import come first, since the commands and options that they add are parsed, too.
    early = Parser("mu2mpi", add_help=False, allow_abbrev=False)
    early.add_argument("--import", dest="files", action="append")
    imports, words = early.parse_known_args(words)
    if imports.files:
        from mu2mpi.core import parallel

        with parallel.world_if_parallel().together():
            import_files(imports.files)
    names = command_names()
    given = next((word for word in words if word in names), None)
    # The list of commands is not shown if the first word is one.
    parser = parser_of([given] if given and given == words[0] else names, [given])
    arguments, unknown = parser.parse_known_args(words)
    if unknown:
        arguments.parser.refuse(unknown)
    return arguments


def parser_of(names: Sequence[str], complete: Sequence[str | None]) -> Parser:
    """Return the parser of these commands, of which some are complete with their arguments."""
    parser = Parser("mu2mpi", description=DESCRIPTION, epilog=EXAMPLES, allow_abbrev=False)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--version", action="version", version=f"mu2mpi {__version__}")
    parser.add_argument("--import", metavar="FILE", help=IMPORT)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in names:
        text = summary("commands", name)
        of_command = commands.add_parser(name, help=text[:1].lower() + text[1:], allow_abbrev=False)
        of_command.add_argument("--import", metavar="FILE", help=IMPORT)
        if name in complete:
            command = find("commands", name)
            of_command.description = command.__doc__
            of_command.set_defaults(command=command, parser=of_command)
            if hasattr(command, "add_arguments"):
                command.add_arguments(of_command)
    return parser


class _Output(io.FileIO):
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


def _open_outputs() -> None:
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
            buffer = io.BufferedWriter(_Output(number, "wb", closefd=False))
            encoding, lines = getattr(stream, "encoding", "utf-8"), number == 2 or os.isatty(number)
            stream = io.TextIOWrapper(buffer, encoding, line_buffering=lines)
            setattr(sys, name, stream)
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that cannot show a letter gets a question mark instead of an error.
            stream.reconfigure(errors="replace")


def _end(message: str, code: int, together: bool) -> int:
    """Say on rank 0 what all know together, or on this rank what it alone knows, which ends the others."""
    from mu2mpi.core import parallel

    communicator = parallel.world_if_parallel()
    who = "" if together or communicator.size == 1 else f"rank {communicator.rank}: "
    if communicator.rank == 0 or not together:
        print(f"mu2mpi: {who}{message}", file=sys.stderr, flush=True)
    if together:
        communicator.wait_for_all()
        return _with_word(code)
    is_left = exit_report.leave_word(code)
    if communicator.size > 1:
        communicator.abort(code)
    return 0 if is_left else code


def _with_word(code: int) -> int:
    """Leave word of this code if `mu2mpi launch` waits for it; return the exit code of every rank."""
    # It is 0 then for any end, since launchers kill ranks once one ends otherwise.
    if not os.environ.get(exit_report.VARIABLE):
        return code
    from mu2mpi.core import parallel

    communicator = parallel.world_if_parallel()
    return 0 if communicator.share(communicator.rank == 0 and exit_report.leave_word(code)) else code
