"""Run every combination of the lists in a TOML file, or compare methods.

Any key may hold a list, and an option replaces it. Finished runs are skipped. With --select, a random number
of random combinations is run, and only the best result is written, with the guarantee of the whole selection.
"""

import re
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path

from mu2mpi.cli import experiment_arguments
from mu2mpi.cli.common_arguments import add_flag, add_output
from mu2mpi.config.experiment import Experiment
from mu2mpi.config.sweep import Sweep
from mu2mpi.core.parallel import Communicator, world
from mu2mpi.core.text import print_messages
from mu2mpi.privacy.accounting.selection import Selection

COMMON_OPTIONS = "config methods data server machines epsilon rounds seed index part dry_run select output"
USAGE_EXAMPLES = """\
  mu2mpi sweep tables.toml --dry-run
  mpirun -n 2 mu2mpi sweep tables.toml --output runs/
  mu2mpi sweep --methods all --data digits --epsilon 2 --machines 10"""
SELECTED_FILE = "selected.h5"  # result of a selection, in the folder of the results


def add_arguments(parser: ArgumentParser) -> None:
    config_help = "file with settings, of which any may be a list"
    parser.add_argument("config", type=Path, nargs="?", metavar="TOML", help=config_help)
    methods_help = "methods to compare by their presets: all, or names with commas"
    parser.add_argument("--methods", metavar="NAMES", help=methods_help)
    add_output(parser, "folder of the results [default: runs/]", "FOLDER", default=Path("runs"))
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--index", type=int, metavar="I", help="index of the only combination to run, from 0")
    part_help = "K-th of N parts of the combinations, from 0 (array jobs)"
    group.add_argument("--part", type=_parse_sweep_part, default=(0, 1), metavar="K/N", help=part_help)
    select_help = "test metric, such as test_loss, of the only result to release, within --epsilon in all"
    group.add_argument("--select", metavar="METRIC", help=select_help)
    add_flag(parser, "--dry-run", "list of the combinations and their indices; nothing is run")
    runs_help = "mean of the random number of runs of --select [default: 10]"
    parser.add_argument("--select-runs", type=float, default=10.0, metavar="MEAN", help=runs_help)
    experiment_arguments.add_run_options(parser, "repetition of finished runs")


def _parse_sweep_part(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
    if match is None or int(match[1]) >= int(match[2]):
        raise ArgumentTypeError(f"{text!r} is not K/N with whole numbers 0 <= K < N")
    return int(match[1]), int(match[2])


def output_paths(arguments: Namespace, ranks: int) -> list[Path]:
    if arguments.dry_run:
        return []
    if arguments.select is not None:
        return [arguments.output / SELECTED_FILE]
    sweep, chosen = experiment_arguments.select_runs_of_sweep(arguments)
    return [arguments.output / sweep.file_name(experiment) for _, experiment in chosen]


def run_command(arguments: Namespace) -> int:
    communicator = world()
    with communicator.collective_errors():
        sweep, chosen = experiment_arguments.select_runs_of_sweep(arguments)
    if arguments.select is not None:
        return _select_run(arguments, sweep, communicator)
    if arguments.dry_run:
        return _list_runs(arguments, sweep, chosen, communicator)
    from mu2mpi.execution.sweep_runner import run_sweep

    keywords = experiment_arguments.prepare_run(arguments, communicator)
    _, refusals = run_sweep(sweep, chosen, arguments.output, communicator, **keywords)
    if communicator.rank == 0:
        experiment_arguments.warn_about_unprotected_test_sets(experiment for _, experiment in chosen)
        # Said once more, as the first time may be hours ago.
        print_messages(*refusals)
    return 1 if refusals else 0


def _select_run(arguments: Namespace, sweep: Sweep, communicator: Communicator) -> int:
    """Write the best of a random number of runs."""
    from mu2mpi.execution.sweep_selection import run_selection

    if arguments.dry_run:
        arguments.parser.error("--select does not work with --dry-run, as it draws what to run")
    experiment_arguments.prepare_run(arguments, communicator)
    selection = Selection(select=arguments.select, select_runs=arguments.select_runs)
    run_selection(sweep, selection, arguments.output / SELECTED_FILE, arguments.data_dir, arguments.overwrite)
    if communicator.rank == 0:
        experiment_arguments.warn_about_unprotected_test_sets(sweep.experiments)
    return 0


def _list_runs(
    arguments: Namespace, sweep: Sweep, chosen: list[tuple[int, Experiment]], communicator: Communicator
) -> int:
    """Print index and file name of each run, and on standard error a summary and the refused runs."""
    from mu2mpi.execution.evaluation_schedule import run_seconds
    from mu2mpi.execution.progress import duration_text
    from mu2mpi.execution.sweep_plans import resolve_sweep

    experiments = [experiment for _, experiment in chosen]
    resolved = resolve_sweep(sweep, experiments, arguments.data_dir, communicator, to_read=experiments)
    plans, refusals = resolved.plans, resolved.refusal_lines()
    if communicator.rank == 0:
        print_messages(*sweep.exclusions, *refusals)
        names = {experiment: sweep.file_name(experiment) for experiment in plans}
        for index, experiment in chosen:
            if experiment in names:
                print(index, names[experiment])
        left = [plans[e] for e, name in names.items() if not (arguments.output / name).exists()]
        time = duration_text(sum(map(run_seconds, left)) / communicator.size)
        finished = f"{len(plans):,} runs, {len(plans) - len(left):,} of which are in {arguments.output}"
        print_messages(f"{finished}; the others take roughly {time}" if left else finished)
    return 1 if refusals else 0
