"""Run one experiment and write its result.

Under mpirun, on all ranks.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from mu2mpi.cli.common_arguments import add_output


def add_arguments(parser: ArgumentParser) -> None:
    from mu2mpi.cli.experiment_arguments import add_running_options

    parser.add_argument("--config", type=Path, metavar="TOML", help="settings; options override them")
    add_output(parser, "result file [default: runs/ and a name made of the settings]")
    add_running_options(parser)


def outputs(arguments: Namespace, ranks: int) -> list[Path]:
    from mu2mpi.cli.experiment_arguments import experiment_of, output_of

    return [output_of(arguments, experiment_of(arguments), ranks)]


def execute(arguments: Namespace) -> None:
    from mu2mpi.cli.experiment_arguments import experiment_of, how_to_run, output_of, warn_of_tests
    from mu2mpi.core.parallel import world

    communicator = world()
    with communicator.together():
        experiment = experiment_of(arguments)
    from mu2mpi.analysis.description import KEY_GONE, in_brief
    from mu2mpi.execution.job import run
    from mu2mpi.execution.progress import advice_on_ranks

    output = output_of(arguments, experiment, communicator.size)
    told = how_to_run(arguments, communicator, [output])
    result = run(experiment, output=output, progress=True, **told)
    if communicator.rank == 0:
        loss, score = result.history.test_loss[-1], result.final_score
        print(f"{output}: test loss {loss:.4f}, {score}; next: mu2mpi show {output}")
        print(in_brief(result.privacy, result.accounts))
        if result.privacy.has_lost_key:
            print(KEY_GONE)
        warn_of_tests([result.experiment])
        if (advice := advice_on_ranks(result)) is not None:
            print(advice)
