"""Get a data set ready and say what it holds.

A missing MNIST is downloaded, which no other command does.
"""

from argparse import SUPPRESS, ArgumentParser, Namespace

from mu2mpi.cli.shared import add_data_dir, add_flag


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("data", metavar="NAME", help="digits, mnist, synthetic, or a file of your own")
    for option in ("--features", "--labels", "--missing-labels", "--label-range", "--schema", "--test"):
        parser.add_argument(option, default=SUPPRESS, metavar="NAME", help="as for run")
    for option in ("--strict", "--data-is-public"):
        parser.add_argument(option, default=SUPPRESS, action="store_true", help="as for run")
    add_flag(
        parser, "--schema-template", "print a schema of a file's columns, with blanks to fill in, and end"
    )
    add_data_dir(parser)


def execute(arguments: Namespace) -> None:
    from mu2mpi.cli.options import given_settings
    from mu2mpi.config.experiment import Experiment
    from mu2mpi.data.opening import describe_source, schema_template

    if arguments.schema_template:
        print(schema_template(arguments.data), end="")
        return
    print(describe_source(Experiment.make(given_settings(arguments)), arguments.data_dir))
