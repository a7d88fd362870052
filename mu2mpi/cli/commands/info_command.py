"""Print versions, the MPI library, ranks, hosts and folders.

Under mpirun, it shows whether the ranks find each other. Add its output to bug reports.
"""

from argparse import ArgumentParser, Namespace
from importlib.resources import files

from mu2mpi._version import __version__
from mu2mpi.cli.common_arguments import add_flag
from mu2mpi.core.parallel import world


def add_arguments(parser: ArgumentParser) -> None:
    add_flag(parser, "--cite", "citation of the paper and of this version in BibTeX, instead")


def run_command(arguments: Namespace) -> None:
    communicator = world()
    if arguments.cite:
        entries = files("mu2mpi").joinpath("citation.bib").read_text("utf-8")
        text = entries.replace("VERSION", __version__).rstrip()
    else:
        from mu2mpi.execution.environment import data_and_cache_folders, describe_environment

        facts = {**describe_environment(communicator), **data_and_cache_folders()}
        text = "\n".join(f"{name:22} {value}" for name, value in facts.items())
    if communicator.rank == 0:
        print(text)
