"""Command-line program: parse arguments, execute a command, and exit on all ranks.

Exit codes: 0 success, 2 bad input, 1 failure, 75 stopped by a signal after writing a checkpoint.
"""

import argparse
import atexit
import errno
import gc
import io
import os
import select
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from mu2mpi._version import __version__
from mu2mpi.cli.commands import command_names
from mu2mpi.core import errors, rank_report
from mu2mpi.core.registry import component_summary, import_files, lookup
from mu2mpi.core.signals import exiting_on_signals
from mu2mpi.core.suggestions import did_you_mean, should_be_one_of

if TYPE_CHECKING:
    from mu2mpi.core.parallel import Communicator

PROGRAM_DESCRIPTION = "Differentially private federated convex optimisation over MPI (DP-mu^2-FL)."
USAGE_EXAMPLES = """examples:
  mu2mpi run --rho 8 --seed 1                        a small run on the built-in digits
  mpirun -n 4 mu2mpi run --data mnist --output a.h5  four machines on four ranks
  mpirun -n 2 mu2mpi sweep jobs/tables.toml --output runs/
  mu2mpi table runs/
  mu2mpi plot runs/ -o figure.png
  mu2mpi report runs/
  mu2mpi privacy --epsilon 2 --delta 1e-5            which rho that is

mu2mpi COMMAND --help explains a command."""

IMPORT_OPTION_HELP = "Python file that registers losses, methods, figures, commands, ...; may be repeated"


class HelpAction(argparse.Action):
    """Action of --help: print the help of a command, or of a topic for commands with topics, and exit."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, topic: Any, flag: Any = None) -> None:
        """Print the help of the parser's command, or of one topic, and exit."""
        command = parser.get_default("command")
        if not hasattr(command, "COMMON_OPTIONS"):
            parser.print_help()
        else:
            from mu2mpi.cli.help_topics import command_help

            print(command_help(parser, command, topic), end="")
        parser.exit()


class Parser(argparse.ArgumentParser):
    """Argument parser that raises `CollectiveInputError` for bad usage, which is the same on all ranks."""

    def error(self, message: str) -> NoReturn:
        """Raise CollectiveInputError with an error message, and the command that prints the help."""
        raise errors.CollectiveInputError(f"{message}\nSee: {self.prog} --help")

    def reject_unknown(self, unknown: Sequence[str]) -> NoReturn:
        """Raise CollectiveInputError for unknown arguments, with a line and a suggestion for each option."""
        known = [flag for action in self._actions for flag in action.option_strings if flag.startswith("--")]
        options = [argument.partition("=")[0] for argument in unknown if argument.startswith("-")]
        lines = [f"unknown option {option}{did_you_mean(option, known)}" for option in options]
        self.error("\n".join(lines or [f"unknown arguments: {' '.join(unknown)}"]))

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        # argparse removes "--", also where it is the value of an option.
        if action.option_strings and "--" in arg_strings:
            raise argparse.ArgumentError(action, "a value is needed, got --")
        if action.type is Path and "" in arg_strings:
            raise argparse.ArgumentError(action, "a path must not be empty")
        return super()._get_values(action, arg_strings)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            hint = should_be_one_of(str(value), map(str, action.choices))
            raise argparse.ArgumentError(action, f"{value!r} {hint}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the mu2mpi command in `argv` (by default sys.argv) and return its exit code."""
    if argv is None:
        gc.set_threshold(50_000, 20, 100)  # Imports leave little garbage,
        atexit.register(gc.freeze)  # and the exit none that must be collected.
    _open_standard_streams()
    with exiting_on_signals():
        try:
            return _report_exit_code(_execute_command(parse(sys.argv[1:] if argv is None else argv)))
        except (errors.InputError, OSError) as error:
            on_all_ranks = isinstance(error, errors.CollectiveInputError | errors.CollectiveOSError)
            try:
                os.getcwd()
            except OSError:
                hint = "The working directory was removed. Change to an existing folder."
                error = errors.InputError(f"{error}\n{hint}")
            code = 2 if isinstance(error, errors.InputError) else 1
            return _exit_with_message(f"error: {error}", code, on_all_ranks)
        except errors.Interrupted as stop:
            text = f"stopped after round {stop.rounds_done} with a checkpoint. Repeat the command to resume"
            return _exit_with_message(text, errors.EXIT_INTERRUPTED, on_all_ranks=True)
        except Exception as error:
            # Errors of MPI mostly follow from the loss of another rank, whose exit code counts.
            if not type(error).__module__.startswith("mpi4py"):
                rank_report.write_exit_code(1)
            raise


def _execute_command(arguments: argparse.Namespace) -> int:
    """Execute a command; return its exit code, or 1 if its text is lost and it has no output files."""
    writes_results = hasattr(arguments.command, "output_paths")
    code = arguments.command.run_command(arguments) or 0
    sys.stdout.flush()
    write_error = getattr(getattr(getattr(sys.stdout, "buffer", None), "raw", None), "write_error", None)
    if writes_results or write_error is None:
        return code
    if write_error.errno == errno.EPIPE:
        # The reader, such as `head`, closed the pipe.
        return _report_exit_code(1)
    text = f"error: cannot write to standard output: {write_error.strerror}"
    return _exit_with_message(text, 1, on_all_ranks=False)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse a command line into its arguments, importing only the module of the command that it names."""
    if is_completing := "_ARGCOMPLETE" in os.environ:
        from mu2mpi.cli import completion

        argv = completion.complete_words()
    # Import files first, since they may register commands and options.
    import_parser = Parser("mu2mpi", add_help=False, allow_abbrev=False)
    import_parser.add_argument("--import", dest="files", action="append")
    imports, argv = import_parser.parse_known_args(argv)
    if imports.files:
        with _communicator().collective_errors():
            import_files(imports.files)
    names = command_names()
    command = next((argument for argument in argv if argument in names), None)
    # The other commands are needed only for the list of commands and for errors.
    parser = build_parser([command] if command and command == argv[0] else names, [command])
    if is_completing:
        completion.print_completions(parser)
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:
        arguments.parser.reject_unknown(unknown)
    return arguments


def build_parser(listed_commands: Sequence[str], loaded_commands: Sequence[str | None]) -> Parser:
    """Build the argument parser of `listed_commands`; only `loaded_commands` get their arguments."""
    parser = Parser("mu2mpi", description=PROGRAM_DESCRIPTION, epilog=USAGE_EXAMPLES, allow_abbrev=False)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--version", action="version", version=f"mu2mpi {__version__}")
    parser.add_argument("--import", metavar="FILE", help=IMPORT_OPTION_HELP)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in listed_commands:
        text = component_summary("commands", name)
        text = text[:1].lower() + text[1:]
        subparser = commands.add_parser(name, help=text, add_help=False, allow_abbrev=False)
        command = lookup("commands", name) if name in loaded_commands else None
        has_topics = hasattr(command, "COMMON_OPTIONS")
        topic: dict[str, Any] = {"nargs": "?", "metavar": "NAME"} if has_topics else {"nargs": 0}
        subparser.add_argument("-h", "--help", action=HelpAction, help="show help and exit", **topic)
        subparser.add_argument("--import", metavar="FILE", help=IMPORT_OPTION_HELP)
        if command is not None:
            subparser.description = command.__doc__
            subparser.set_defaults(command=command, parser=subparser)
            if hasattr(command, "add_arguments"):
                command.add_arguments(subparser)
    return parser


class _FailSafeOutput(io.FileIO):
    """Binary output file that drops data after the first write error, which is kept in `write_error`."""

    write_error: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            while (written := super().write(data)) is None:
                select.select([], [self], [])  # a terminal in non-blocking mode
        except OSError as error:
            self.write_error = self.write_error or error
            return len(data)
        return written


def _open_standard_streams() -> None:
    """Replace standard output and error by `_FailSafeOutput`, unless the caller has redirected them."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # Otherwise the next opened file would get this descriptor, and receive what libraries print.
            os.open(os.devnull, os.O_RDONLY)
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is getattr(sys, f"__{name}__"):
            with suppress(AttributeError, OSError):
                stream.flush()
            buffer = io.BufferedWriter(_FailSafeOutput(descriptor, "wb", closefd=False))
            encoding, is_live = getattr(stream, "encoding", "utf-8"), descriptor == 2 or os.isatty(descriptor)
            stream = io.TextIOWrapper(buffer, encoding, line_buffering=is_live)
            setattr(sys, name, stream)
        if isinstance(stream, io.TextIOWrapper):
            # Print a question mark instead of failing where the encoding lacks a letter.
            stream.reconfigure(errors="replace")


def _communicator() -> "Communicator":
    # Imported late: a help text needs no communicator.
    from mu2mpi.core.parallel import world_if_parallel

    return world_if_parallel()


def _exit_with_message(message: str, code: int, on_all_ranks: bool) -> int:
    """Print a message and return the exit code: on all ranks, or on this rank, which aborts the others."""
    communicator = _communicator()
    prefix = "" if on_all_ranks or communicator.size == 1 else f"rank {communicator.rank}: "
    if communicator.rank == 0 or not on_all_ranks:
        print(f"mu2mpi: {prefix}{message}", file=sys.stderr, flush=True)
    if on_all_ranks:
        communicator.barrier()
        return _report_exit_code(code)
    is_written = rank_report.write_exit_code(code)
    if communicator.size > 1:
        communicator.abort(code)
    return 0 if is_written else code


def _report_exit_code(code: int) -> int:
    """Report the exit code to `mu2mpi launch`, if it started the ranks; return each rank's exit code."""
    # With a report, exit with 0, since MPI launchers kill the other ranks after a nonzero exit code.
    if not os.environ.get(rank_report.RANK_REPORT_VARIABLE):
        return code
    communicator = _communicator()
    is_written = communicator.rank == 0 and rank_report.write_exit_code(code)
    return 0 if communicator.bcast_object(is_written) else code
