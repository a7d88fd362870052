"""Run one experiment and write its result file.

Under mpirun, all ranks share the run.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from mu2mpi.cli import experiment_arguments
from mu2mpi.cli.common_arguments import add_flag, add_output
from mu2mpi.core.parallel import world

COMMON_OPTIONS = "data method preset server machines rounds epsilon delta loss seed output config"
USAGE_EXAMPLES = """\
  mu2mpi run --preset practical --server trusted --machines 10 --epsilon 2
  mpirun -n 4 mu2mpi run --data mnist --server trusted --output a.h5
  mu2mpi run --config experiment.toml --dry-run"""


def add_arguments(parser: ArgumentParser) -> None:
    config_help = "file with settings, which options override"
    parser.add_argument("--config", type=Path, metavar="TOML", help=config_help)
    add_output(parser, "result file [default: runs/ and the settings]")
    add_flag(parser, "--dry-run", "checks and the plan of the run alone; nothing is run or written")
    experiment_arguments.add_run_options(parser, "replacement of an existing output")


def output_paths(arguments: Namespace, ranks: int) -> list[Path]:
    if arguments.dry_run:
        return []
    experiment = experiment_arguments.build_experiment(arguments)
    return [experiment_arguments.output_path(arguments, experiment, ranks)]


def run_command(arguments: Namespace) -> None:
    communicator = world()
    with communicator.collective_errors():
        experiment = experiment_arguments.build_experiment(arguments)
    from mu2mpi.analysis.description import KEY_DISCARDED_NOTE, privacy_summary
    from mu2mpi.execution.job import prepare_simulation, run

    output = experiment_arguments.output_path(arguments, experiment, communicator.size)
    keywords = experiment_arguments.prepare_run(arguments, communicator)
    if arguments.dry_run:
        from mu2mpi.analysis.run_plan import describe_run_plan

        prepared = prepare_simulation(experiment, output, arguments.data_dir, arguments.overwrite)
        text = describe_run_plan(prepared, output)
        if communicator.rank == 0:
            print(text)
        return
    result = run(experiment, output=output, progress=True, **keywords)
    if communicator.rank == 0:
        loss, score = result.history.test_loss[-1], result.final_score
        print(f"{output}: test loss {loss:.4f}, {score}; next: mu2mpi show {output}")
        print(privacy_summary(result.privacy, result.accounts))
        if result.privacy.is_key_discarded:
            print(KEY_DISCARDED_NOTE)
        experiment_arguments.warn_about_unprotected_test_sets([result.experiment])
