"""``mu2mpi launch``."""

from argparse import REMAINDER, ArgumentParser, Namespace

SUMMARY = "start another command on all ranks of a job and see it through"
MORE = (
    "Finds out whether mpirun or srun starts ranks that find each other, passes signals on to them, and "
    "requeues the SLURM job when they stopped with a checkpoint."
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add the ranks, the requeues, and the command to start."""
    ranks, requeues = "[default: those of the SLURM job, or 1]", "at most so often [default: 20]"
    parser.add_argument("--ranks", type=int, metavar="N", help=ranks)
    parser.add_argument("--requeues", type=int, default=20, metavar="N", help=requeues)
    parser.add_argument("words", nargs=REMAINDER, metavar="COMMAND ...", help="such as: run --seed 1")


def execute(arguments: Namespace) -> int:
    """Start the command, and return its exit code."""
    from mu2mpi.cluster.launch import launch

    if not arguments.words:
        arguments.parser.error("name the command to start, such as: mu2mpi launch run --seed 1")
    if arguments.ranks is not None and arguments.ranks < 1:
        arguments.parser.error(f"--ranks {arguments.ranks} is not a positive number")
    return launch(arguments.words, arguments.ranks, arguments.requeues)
