"""Start another command on all ranks of a job and see it through.

Finds out whether mpirun or srun starts ranks that find each other, passes signals on to them, ends well only
if rank 0 leaves word that the run did, and requeues a SLURM job that stopped or lost ranks.
"""

from argparse import REMAINDER, ArgumentParser, Namespace


def add_arguments(parser: ArgumentParser) -> None:
    ranks, requeues = "[default: MU2MPI_RANKS, those of the job, or 1]", "at most so often [default: 20]"
    parser.add_argument("--ranks", type=int, metavar="N", help=ranks)
    parser.add_argument("--requeues", type=int, default=20, metavar="N", help=requeues)
    parser.add_argument("words", nargs=REMAINDER, metavar="COMMAND ...", help="such as: run --seed 1")


def execute(arguments: Namespace) -> int:
    from mu2mpi.cli.program import parse
    from mu2mpi.cluster.launcher import Outputs, Signals, launch, ranks_of_job
    from mu2mpi.core.registry import import_options
    from mu2mpi.execution.signals import SIGNALS, handling

    if not arguments.words:
        arguments.parser.error("name the command to start, such as: mu2mpi launch run --seed 1")
    if arguments.ranks is not None and arguments.ranks < 1:
        arguments.parser.error(f"--ranks {arguments.ranks} is not a positive number")
    signals = Signals()
    with handling(dict.fromkeys(SIGNALS, signals)):
        ranks = arguments.ranks or ranks_of_job()
        # Here, what cannot be used is found before any rank is started.
        what = parse(arguments.words)
        paths = what.command.outputs(what, ranks) if hasattr(what.command, "outputs") else []
        outputs = Outputs(paths, getattr(what, "overwrite", False))
        return launch([*import_options(), *arguments.words], outputs, ranks, arguments.requeues, signals)
