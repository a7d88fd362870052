"""``mu2mpi info``."""

from argparse import Namespace

SUMMARY = "print versions, the MPI library, ranks, hosts and folders"
MORE = "Under mpirun it tells whether the ranks find each other. Put its output into a bug report."


def execute(arguments: Namespace) -> None:
    """Print what is known of where this runs."""
    from mu2mpi.execution.environment import describe, folders
    from mu2mpi.parallel import world

    communicator = world()
    facts = describe(communicator)
    if communicator.rank == 0:
        for name, value in {**facts, **folders()}.items():
            print(f"{name:22} {value}")
