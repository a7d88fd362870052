"""Prepare a data set and print what it contains.

Only this command downloads MNIST or Fashion-MNIST if files are missing.
"""

from argparse import SUPPRESS, ArgumentParser, Namespace

from mu2mpi.cli.common_arguments import add_shared_options


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("data", metavar="NAME", help="data set name or file, as for run")
    for option in ("--features", "--labels", "--missing-labels", "--label-range", "--schema", "--test"):
        parser.add_argument(option, default=SUPPRESS, metavar="NAME", help="as for run")
    parser.add_argument("--data-is-public", default=SUPPRESS, action="store_true", help="as for run")
    add_shared_options(parser, "--data-dir")


def run_command(arguments: Namespace) -> None:
    from mu2mpi.cli.experiment_arguments import explicit_settings
    from mu2mpi.config.experiment import Experiment
    from mu2mpi.data.source import DataRequest
    from mu2mpi.data.source_description import describe_source

    experiment = Experiment.from_settings(explicit_settings(arguments))
    settings = experiment.data, experiment.source_options, experiment.sample_scaling
    request = DataRequest(*settings, arguments.data_dir, verify_checksums=False)
    print(describe_source(experiment.source, request))
