"""``mu2mpi data``."""

from argparse import SUPPRESS, ArgumentParser, Namespace

from mu2mpi.cli.shared import add_data_dir

SUMMARY = "get a data set ready and say what it holds"
MORE = "A missing MNIST is downloaded, which no other command does."


def add_arguments(parser: ArgumentParser) -> None:
    """Add the data set, and where in it things are."""
    parser.add_argument("data", metavar="NAME", help="digits, mnist, synthetic, or a file of your own")
    for option in ("--features", "--labels", "--missing-labels"):
        parser.add_argument(option, default=SUPPRESS, metavar="NAME", help="as for run")
    add_data_dir(parser)


def execute(arguments: Namespace) -> None:
    """Describe the data set, which is downloaded if need be."""
    from mu2mpi.cli.options import given_settings
    from mu2mpi.config.experiment import Experiment
    from mu2mpi.data.opening import describe_source

    print(describe_source(Experiment.make(given_settings(arguments)), arguments.data_dir))
