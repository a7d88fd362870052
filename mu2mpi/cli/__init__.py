"""The command line: one subcommand each, thin layers over the package.

Exit codes: 0 done, 2 bad input, 1 failure, 75 stopped by a signal with a checkpoint written. Heavy imports
wait until a command needs them.
"""

import argparse
import io
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from mu2mpi._version import __version__
from mu2mpi.analysis.figures.catalogue import AGAINST, KINDS, check_kind, suffix_of
from mu2mpi.cli.options import Parser, add_experiment_options, given_settings, merged_settings
from mu2mpi.errors import EXIT_INTERRUPTED, InputError, Interrupted, SharedInputError, SharedOSError
from mu2mpi.execution.signals import CHECKPOINT_SECONDS, stop_requests

if TYPE_CHECKING:
    from mu2mpi.config.experiment import Experiment
    from mu2mpi.results.reader import Summary

__all__ = ["main"]

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


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that cannot show a letter gets a question mark instead of an error.
            stream.reconfigure(errors="replace")
    try:
        arguments = _parser().parse(argv)
        # From here on a signal is kept for the run to come, not died of.
        with stop_requests() if arguments.command in (_run, _sweep) else nullcontext():
            code: int = arguments.command(arguments)
        return code
    except BrokenPipeError:
        # The reader of our output, such as `head`, has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _end_alone("nobody reads the output any more", 1)
    except (SharedInputError, SharedOSError) as error:
        return _end_together(f"error: {error}", 2 if isinstance(error, InputError) else 1)
    except (InputError, OSError) as error:
        return _end_alone(f"error: {error}", 2 if isinstance(error, InputError) else 1)
    except Interrupted as stop:
        return _say_how_to_go_on(stop)
    except KeyboardInterrupt:
        return _end_alone("interrupted", 130)


def _say_how_to_go_on(stop: Interrupted) -> int:
    from mu2mpi import parallel

    if parallel.world().rank == 0:
        print(
            f"mu2mpi: stopped after round {stop.rounds_done} with a checkpoint; "
            "the same command goes on from it",
            file=sys.stderr,
            flush=True,
        )
    return EXIT_INTERRUPTED


def _end_together(message: str, code: int) -> int:
    """Say on rank 0 what every rank knows; every rank ends with this code, and none before it is said."""
    from mu2mpi import parallel

    communicator = parallel.world_if_parallel()
    if communicator.rank == 0:
        print(f"mu2mpi: {message}", file=sys.stderr, flush=True)
    communicator.wait_for_all()
    return code


def _end_alone(message: str, code: int) -> int:
    """Say what this rank alone may know, and end the other ranks, which would wait for it for ever."""
    from mu2mpi import parallel

    communicator = parallel.world_if_parallel()
    who = f"rank {communicator.rank}: " if communicator.size > 1 else ""
    print(f"mu2mpi: {who}{message}", file=sys.stderr, flush=True)
    if communicator.size > 1:
        communicator.abort(code)
    return code


def _parser() -> Parser:
    parser = Parser(
        "mu2mpi",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"mu2mpi {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for add in (
        _add_run,
        _add_sweep,
        _add_table,
        _add_plot,
        _add_report,
        _add_show,
        _add_privacy,
        _add_publish,
        _add_audit,
        _add_job,
        _add_launch,
        _add_data,
        _add_info,
    ):
        add(commands)
    return parser


Commands = argparse._SubParsersAction  # the type that add_subparsers returns has no public name


def _add_command(
    commands: "Commands[Parser]",
    name: str,
    command: Callable[[argparse.Namespace], int],
    summary: str,
    more: str = "",
) -> Parser:
    description = f"{summary[0].upper()}{summary[1:]}. {more}"
    parser = commands.add_parser(name, help=summary, description=description, allow_abbrev=False)
    parser.set_defaults(command=command, parser=parser)
    return parser


def _add_running_options(parser: Parser) -> None:
    """Add what `run` and `sweep` share."""
    _add_data_dir(parser)
    parser.add_argument(
        "--checkpoint-every",
        type=_positive_seconds,
        default=CHECKPOINT_SECONDS,
        metavar="SECONDS",
        help="time between two checkpoints, from which the same command goes on after a kill "
        f"[default: {CHECKPOINT_SECONDS:g}]; SIGUSR1, SIGUSR2 or SIGTERM makes one at once and ends the run "
        f"with code {EXIT_INTERRUPTED}",
    )
    add_experiment_options(parser)


def _add_data_dir(parser: Parser) -> None:
    parser.add_argument(
        "--data-dir",
        type=Path,
        metavar="FOLDER",
        help="holds one folder for each data set, such as mnist/ [default: MU2MPI_DATA_DIR, or the cache]",
    )


def _positive_seconds(text: str) -> float:
    seconds = float(text)
    if not seconds > 0:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number of seconds")
    return seconds


def _add_run(commands: "Commands[Parser]") -> None:
    parser = _add_command(
        commands, "run", _run, "run one experiment and write its result", "Under mpirun, on all ranks."
    )
    parser.add_argument("--config", type=Path, metavar="TOML", help="settings; options override them")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="result file [default: runs/ and a name made of the settings]",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the output if it exists")
    _add_running_options(parser)


def _run(arguments: argparse.Namespace) -> int:
    from mu2mpi.analysis.show import in_brief
    from mu2mpi.config.experiment import Experiment, result_name
    from mu2mpi.execution.job import run
    from mu2mpi.execution.progress import for_standard_error
    from mu2mpi.execution.warmup import start_compiler_without_scipy
    from mu2mpi.parallel import world

    communicator = world()
    start_compiler_without_scipy()
    with communicator.together():
        where = "" if arguments.config is None else str(arguments.config)
        experiment = Experiment.make(merged_settings(arguments.config, arguments), where)
    output = arguments.output
    if output is None:
        named = experiment.model_copy(update={"machines": experiment.machines or communicator.size})
        output = Path("runs") / result_name(named)
    result = run(
        experiment,
        output=output,
        data_dir=arguments.data_dir,
        overwrite=arguments.overwrite,
        progress=for_standard_error(),
        checkpoint_every=arguments.checkpoint_every,
    )
    if communicator.rank == 0:
        loss, accuracy = result.history.test_loss[-1], result.history.test_accuracy[-1]
        print(f"{output}: test loss {loss:.4f}, accuracy {accuracy:.1%}; next: mu2mpi show {output}")
        print(in_brief(result.privacy))
        _warn_of_test_share([result.experiment])
    return 0


def _warn_of_test_share(experiments: "Sequence[Experiment]") -> None:
    """Say what is not protected of runs that are private but for their test set."""
    from mu2mpi.analysis.show import TEST_SHARE

    if any(experiment.tests_on_a_share and experiment.seed is None for experiment in experiments):
        print(f"not private: {TEST_SHARE[0].lower()}{TEST_SHARE[1:]}")


def _add_sweep(commands: "Commands[Parser]") -> None:
    parser = _add_command(
        commands,
        "sweep",
        _sweep,
        "run every combination of the lists in a TOML file",
        "Any key may hold a list; an option replaces it. Finished runs are skipped.",
    )
    parser.add_argument("config", type=Path, metavar="TOML", help="settings, of which any may be a list")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FOLDER", default=Path("runs"), help="[default: runs/]"
    )
    parser.add_argument(
        "--index", type=int, metavar="I", help="run only the I-th combination, from 0 (array jobs)"
    )
    parser.add_argument(
        "--list", action="store_true", help="print the combinations and their indices, run nothing"
    )
    parser.add_argument("--overwrite", action="store_true", help="run again what is finished")
    _add_running_options(parser)


def _sweep(arguments: argparse.Namespace) -> int:
    from mu2mpi.config.experiment import Sweep, read_toml
    from mu2mpi.execution.sweep import run_sweep
    from mu2mpi.execution.warmup import start_compiler_without_scipy
    from mu2mpi.parallel import world

    communicator = world()
    with communicator.together():
        sweep = Sweep(read_toml(arguments.config), str(arguments.config), given_settings(arguments))
        chosen = sweep.choose(arguments.index)
    if arguments.list:
        if communicator.rank == 0:
            for index, experiment in chosen:
                print(index, sweep.file_name(experiment))
        return 0
    start_compiler_without_scipy()
    run_sweep(
        sweep, chosen, arguments.output, arguments.data_dir, arguments.overwrite, arguments.checkpoint_every
    )
    if communicator.rank == 0:
        _warn_of_test_share([experiment for _, experiment in chosen])
    return 0


def _add_table(commands: "Commands[Parser]") -> None:
    parser = _add_command(
        commands,
        "table",
        _table,
        "print results as a table, by default in the layout of the paper's",
        "Mean and standard deviation over seeds, the paper's value beside. Settings that are neither row nor "
        "column and differ make several tables.",
    )
    _add_paths(parser)
    for option, default, what in (
        ("--rows", "server,rho", "settings to put down"),
        ("--columns", "machines", "settings to put across"),
        ("--values", "test_loss,test_accuracy", "measurements, such as excess_loss or elapsed_seconds"),
    ):
        parser.add_argument(
            option, type=_names, default=default, metavar="NAMES", help=f"{what} [default: {default}]"
        )
    parser.add_argument("--format", choices=("text", "csv", "markdown", "latex"), default="text")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _add_paths(parser: Parser, name: str = "PATH") -> None:
    """Add what all commands share that read many results."""
    parser.add_argument("paths", type=Path, nargs="+", metavar=name, help="result files, or folders of them")
    parser.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="use only runs with this setting, such as rho=4; may be given several times",
    )
    parser.add_argument(
        "--strict", action="store_true", help="make a file that cannot be used an error, not a warning"
    )


def _read_paths(arguments: argparse.Namespace) -> "tuple[list[Summary], list[str]]":
    """Read what is at the paths of a command, warn of what is skipped, and return both."""
    from mu2mpi.results.collection import find_summaries

    found, warnings = find_summaries(arguments.paths, arguments.strict)
    for warning in warnings:
        print(f"mu2mpi: warning: skipped: {warning}", file=sys.stderr)
    if not found:
        raise InputError(f"no results in {', '.join(str(path) for path in arguments.paths)}")
    from mu2mpi.analysis.groups import chosen

    return chosen(found, arguments.where), warnings


def _table(arguments: argparse.Namespace) -> int:
    from mu2mpi.analysis.cells import Layout
    from mu2mpi.analysis.tables import build_table

    layout = Layout(arguments.rows, arguments.columns, arguments.values)
    runs, _ = _read_paths(arguments)
    print(build_table(runs, layout).render(arguments.format))
    return 0


def _add_plot(commands: "Commands[Parser]") -> None:
    parser = _add_command(
        commands,
        "plot",
        _plot,
        "draw a figure of results, ready for a paper",
        "FIGURE is one of: "
        + "; ".join(f"{kind} ({what})" for kind, what in KINDS.items())
        + ". Without it: tradeoff for runs of several rho, history otherwise.",
    )
    _add_paths(parser, "[FIGURE] PATH")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE",
        help="PNG, SVG or PDF by its suffix [default: FIGURE.png]",
    )  # fmt: skip
    parser.add_argument(
        "--against",
        choices=[axis for axes in AGAINST.values() for axis in axes],
        help="what is across: "
        + "; ".join(f"{' or '.join(axes)} for {kind} [default: {axes[0]}]" for kind, axes in AGAINST.items()),
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the output if it exists")


def _plot(arguments: argparse.Namespace) -> int:
    from mu2mpi.analysis.figures import draw, image
    from mu2mpi.files import write_whole
    from mu2mpi.results.writer import check_output

    first, *others = arguments.paths
    kind = str(first) if str(first) in KINDS else None
    if kind is not None:
        if not others:
            arguments.parser.error(f"name the results to draw, such as: mu2mpi plot {kind} runs/")
        arguments.paths = others
    elif not first.exists():
        arguments.parser.error(f"{first} is neither a figure ({', '.join(KINDS)}) nor a file or folder")
    if kind is not None:
        check_kind(kind, arguments.against)
    if arguments.output is not None:
        suffix_of(arguments.output)
        check_output(arguments.output, arguments.overwrite)
    runs, _ = _read_paths(arguments)
    kind = kind or ("tradeoff" if len({run.experiment.rho for run in runs}) > 1 else "history")
    output = arguments.output or Path(f"{kind}.png")
    check_output(output, arguments.overwrite)
    write_whole(output, [image(draw(kind, runs, arguments.against), suffix_of(output))])
    print(output)
    return 0


def _add_report(commands: "Commands[Parser]") -> None:
    parser = _add_command(
        commands,
        "report",
        _report,
        "make one page of results: tables, figures, privacy, how to repeat them",
        "The page holds all that it shows and needs no network.",
    )
    _add_paths(parser)
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        default=Path("report.html"),
        help="[default: report.html]",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the output if it exists")


def _report(arguments: argparse.Namespace) -> int:
    from mu2mpi.analysis.report import build_report
    from mu2mpi.files import write_whole
    from mu2mpi.results.writer import check_output

    check_output(arguments.output, arguments.overwrite)
    runs, skipped = _read_paths(arguments)
    write_whole(arguments.output, [build_report(runs, skipped).encode()])
    print(arguments.output)
    return 0


def _add_show(commands: "Commands[Parser]") -> None:
    parser = _add_command(commands, "show", _show, "print what a result file or a checkpoint holds")
    parser.add_argument("path", type=Path, metavar="FILE", help="a result file, which may not be finished")
    parser.add_argument(
        "--diagnostics",
        action="store_true",
        help="print also what is computed from private data and not covered by the guarantee",
    )


def _show(arguments: argparse.Namespace) -> int:
    from mu2mpi.analysis.show import describe, describe_checkpoint
    from mu2mpi.results.checkpoint import SUFFIX, checkpoint_path, read_checkpoint
    from mu2mpi.results.reader import read_result

    path = arguments.path
    if path.suffix != SUFFIX and not path.exists() and checkpoint_path(path).exists():
        path = checkpoint_path(path)
    if path.suffix == SUFFIX:
        print(describe_checkpoint(read_checkpoint(path), path))
    else:
        print(describe(read_result(path), path, arguments.diagnostics))
    return 0


def _add_privacy(commands: "Commands[Parser]") -> None:
    parser = _add_command(
        commands,
        "privacy",
        _privacy,
        "compute rho, epsilon and delta from each other, or check the claims of results",
        "Give --rho, or --epsilon, or two of --rho, --epsilon and --delta. Or give result files: what they "
        "claim is computed again from their noise, and a claim that does not hold is an error with code 1.",
    )
    parser.add_argument(
        "paths", type=Path, nargs="*", metavar="PATH", help="result files, or folders of them"
    )
    for name, what in (
        ("rho", "privacy of all releases together, as for `run`"),
        ("epsilon", "the epsilon to reach"),
        ("delta", "its delta [with --epsilon alone: that of `run`]"),
    ):
        parser.add_argument(f"--{name}", type=float, metavar="REAL", default=argparse.SUPPRESS, help=what)
    parser.add_argument(
        "--samples",
        type=int,
        metavar="N",
        default=argparse.SUPPRESS,
        help="number of samples of all machines, by which delta is judged",
    )


def _privacy(arguments: argparse.Namespace) -> int:
    from mu2mpi.analysis.conversion import convert
    from mu2mpi.analysis.ledgers import check_ledgers

    names = ("rho", "epsilon", "delta", "samples")
    given = {name: getattr(arguments, name) for name in names if hasattr(arguments, name)}
    if bool(given) == bool(arguments.paths):
        arguments.parser.error("give result files, or some of --rho, --epsilon and --delta")
    if given:
        print(convert(given))
        return 0
    text, problems = check_ledgers(arguments.paths)
    print(text)
    for problem in problems:
        print(f"mu2mpi: error: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _add_publish(commands: "Commands[Parser]") -> None:
    parser = _add_command(
        commands,
        "publish",
        _publish,
        "write results anew without what the guarantee does not cover",
        "Left out are diagnostics, times, the machine, the folders of data files, and loss and accuracy on a "
        "share of the data file. A result whose claims do not hold, or that protects nobody, is refused.",
    )
    parser.add_argument(
        "paths", type=Path, nargs="+", metavar="PATH", help="result files, or folders of them"
    )
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="PATH",
        help="file for one file, or folder for several",
    )  # fmt: skip
    parser.add_argument("--overwrite", action="store_true", help="replace files that exist")
    parser.add_argument(
        "--even-if-unprotected",
        action="store_true",
        help="publish also runs whose noise follows from their seed, or that added none",
    )
    parser.add_argument(
        "--with-test-results",
        action="store_true",
        help="keep loss and accuracy on a share of the data file: no noise protects the people in it",
    )


def _publish(arguments: argparse.Namespace) -> int:
    from mu2mpi.analysis.publication import publish

    lines = publish(
        arguments.paths,
        arguments.output,
        overwrite=arguments.overwrite,
        even_if_unprotected=arguments.even_if_unprotected,
        with_test_results=arguments.with_test_results,
    )
    print("\n".join(lines))
    return 0


def _add_audit(commands: "Commands[Parser]") -> None:
    parser = _add_command(
        commands,
        "audit",
        _audit,
        "attack the code's own messages and compare what they give away with what is claimed",
        "The algorithm is run many times on data of which each sample is one of two by a coin, as near to "
        "the worst case as data come. The adversary, who knows all samples but one, has to tell this one "
        "from all that it sees. That can refute a claim, never prove it. If a claim is refuted, or less is "
        "reached than faithful code gives away, the code is 1. Under mpirun the ranks share the runs.",
    )
    parser.add_argument(
        "--method", metavar="NAME",
        help="of snowball-sgd, which protects the last iterate alone, only the output is attacked, with a "
        "trusted server unless --machines is 1 [default: mu2-sgd]",
    )  # fmt: skip
    parser.add_argument(
        "--estimator", choices=("corrected-momentum", "gradient"),
        help="of mu2-sgd, as for `run` [default: corrected-momentum]",
    )  # fmt: skip
    parser.add_argument(
        "--query", choices=("average", "iterate"), help="of mu2-sgd, as for `run` [default: average]"
    )
    parser.add_argument(
        "--batch", metavar="N",
        help="of a method that draws its samples, as for `run`; of dp-sgd each machine has one [default: a "
        "third of them], of noisy-minibatch-sgd as many as there are rounds",
    )  # fmt: skip
    parser.add_argument("--server", choices=("untrusted", "trusted"), help="[default: both, one by one]")
    parser.add_argument("--machines", default=3, metavar="N", help="number of machines M [default: 3]")
    parser.add_argument("--rounds", default=10, metavar="N", help="number of rounds T [default: 10]")
    parser.add_argument("--normalize", choices=("none", "unit"), help="[default: none]")
    parser.add_argument("--rho", metavar="REAL", help="the claim that is audited [default: 1]")
    parser.add_argument("--epsilon", metavar="REAL", help="the same as an epsilon, at this delta")
    parser.add_argument(
        "--delta", default=1e-5, metavar="REAL", help="the delta at which epsilon is stated [default: 1e-05]"
    )
    parser.add_argument(
        "--trials",
        type=int,
        default=2000,
        metavar="N",
        help="runs with each sample of a kind [default: 2000]",
    )
    parser.add_argument("--seed", metavar="N", help="makes the audit reproducible [default: a secret key]")


def _audit(arguments: argparse.Namespace) -> int:
    from mu2mpi.audit.command import audit_servers
    from mu2mpi.cli.options import given_settings
    from mu2mpi.execution.warmup import start_compiler_without_scipy
    from mu2mpi.parallel import world

    communicator = world()
    start_compiler_without_scipy()
    complaints = []
    for finding in audit_servers(given_settings(arguments), arguments.trials, communicator):
        complaints += finding.complaints
        if communicator.rank == 0:
            print(f"{finding.describe()}\n", flush=True)
    if complaints and communicator.rank == 0:
        print(f"mu2mpi: error: {'; '.join(complaints)}", file=sys.stderr)
    return 1 if complaints else 0


def _add_job(commands: "Commands[Parser]") -> None:
    parser = _add_command(
        commands,
        "job",
        _job,
        "print a SLURM script for an experiment or a sweep",
        "A file with lists becomes an array job with one task for each combination.",
    )
    parser.add_argument("config", type=Path, metavar="TOML", help="an experiment, or a sweep")
    parser.add_argument("-o", "--output", type=Path, metavar="PATH", help="result file, or folder of a sweep")
    parser.add_argument("--ntasks", type=int, default=2, metavar="N", help="ranks of a run [default: 2]")
    parser.add_argument("--time", default="01:00:00", metavar="LIMIT", help="time limit [default: 01:00:00]")
    parser.add_argument("--partition", metavar="NAME")
    parser.add_argument("--account", metavar="NAME")
    parser.add_argument("--submit", action="store_true", help="hand the script to sbatch as well")


def _job(arguments: argparse.Namespace) -> int:
    from mu2mpi.config.experiment import Sweep, read_toml
    from mu2mpi.execution.slurm import JobOptions, render_job, submit

    config, output = arguments.config, arguments.output
    sweep = Sweep(read_toml(config), str(config))
    options = JobOptions(
        name=config.stem,
        ntasks=arguments.ntasks,
        time=arguments.time,
        partition=arguments.partition,
        account=arguments.account,
        array=len(sweep.experiments) if sweep.swept else None,
    )
    if sweep.swept:
        what = [
            "sweep",
            config,
            "--index",
            "$SLURM_ARRAY_TASK_ID",
            "--output",
            output or f"runs/{config.stem}",
        ]
    else:
        what = ["run", "--config", config, "--output", output or f"runs/{config.stem}.h5"]
    active = None if sys.prefix == sys.base_prefix else sys.prefix
    script = render_job(options, [str(word) for word in what], active)
    print(script, end="")
    if arguments.submit:
        submit(script)
    return 0


def _add_launch(commands: "Commands[Parser]") -> None:
    parser = _add_command(
        commands,
        "launch",
        _launch,
        "start another command on all ranks of a job and see it through",
        "Finds out whether mpirun or srun starts ranks that find each other, passes signals on to them, and "
        "requeues the SLURM job when they stopped with a checkpoint.",
    )
    parser.add_argument("--ranks", type=int, metavar="N", help="[default: those of the SLURM job, or 1]")
    parser.add_argument(
        "--requeues", type=int, default=20, metavar="N", help="at most so often [default: 20]"
    )
    parser.add_argument(
        "words", nargs=argparse.REMAINDER, metavar="COMMAND ...", help="such as: run --seed 1"
    )


def _launch(arguments: argparse.Namespace) -> int:
    from mu2mpi.execution.slurm import launch

    if not arguments.words:
        arguments.parser.error("name the command to start, such as: mu2mpi launch run --seed 1")
    if arguments.ranks is not None and arguments.ranks < 1:
        arguments.parser.error(f"--ranks {arguments.ranks} is not a positive number")
    return launch(arguments.words, arguments.ranks, arguments.requeues)


def _add_data(commands: "Commands[Parser]") -> None:
    parser = _add_command(
        commands, "data", _data, "get a data set ready and say what it holds", "MNIST is downloaded once."
    )
    parser.add_argument("data", metavar="NAME", help="digits, mnist, synthetic, or a file of your own")
    parser.add_argument("--features", default=argparse.SUPPRESS, metavar="NAME", help="as for run")
    parser.add_argument("--labels", default=argparse.SUPPRESS, metavar="NAME", help="as for run")
    _add_data_dir(parser)


def _data(arguments: argparse.Namespace) -> int:
    from mu2mpi.config.experiment import Experiment
    from mu2mpi.data import describe_source

    print(describe_source(Experiment.make(given_settings(arguments)), arguments.data_dir))
    return 0


def _add_info(commands: "Commands[Parser]") -> None:
    _add_command(
        commands, "info", _info, "print versions, the MPI library, ranks, hosts and folders",
        "Under mpirun it tells whether the ranks find each other. Put its output into a bug report.",
    )  # fmt: skip


def _info(arguments: argparse.Namespace) -> int:
    from mu2mpi.execution.environment import describe, folders
    from mu2mpi.parallel import world

    communicator = world()
    facts = describe(communicator)
    if communicator.rank == 0:
        for name, value in {**facts, **folders()}.items():
            print(f"{name:22} {value}")
    return 0
