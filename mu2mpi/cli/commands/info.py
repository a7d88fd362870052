"""Print versions, the MPI library, ranks, hosts and folders.

Under mpirun it tells whether the ranks find each other. Put its output into a bug report.
"""

from argparse import ArgumentParser, Namespace

from mu2mpi.cli.shared import add_flag


def add_arguments(parser: ArgumentParser) -> None:
    add_flag(parser, "--cite", "print instead how to cite the paper and this version of mu2mpi, as BibTeX")


def execute(arguments: Namespace) -> None:
    from mu2mpi.core.parallel import world

    communicator = world()
    if arguments.cite:
        from mu2mpi.cli.citation import BIBTEX

        if communicator.rank == 0:
            print(BIBTEX)
        return
    from mu2mpi.execution.environment import describe, folders

    facts = describe(communicator)
    if communicator.rank == 0:
        for name, value in {**facts, **folders()}.items():
            print(f"{name:22} {value}")
