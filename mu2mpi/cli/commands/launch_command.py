"""Start another command on all ranks of a job, and requeue it if it stops.

Chooses mpirun or srun, whichever starts ranks that find each other, and forwards signals to them. Succeeds
only if rank 0 writes an exit report of success. Requeues a SLURM job that stopped or lost ranks.
"""

from argparse import REMAINDER, ArgumentParser, Namespace


def add_arguments(parser: ArgumentParser) -> None:
    ranks, requeues = (
        "number of ranks [default: MU2MPI_RANKS, the job's, or 1]",
        "maximal number of requeues [default: 20]",
    )
    parser.add_argument("--ranks", type=int, metavar="N", help=ranks)
    parser.add_argument("--requeues", type=int, default=20, metavar="N", help=requeues)
    parser.add_argument(
        "words", nargs=REMAINDER, metavar="COMMAND ...", help="command to start, such as: run --seed 1"
    )


def execute(arguments: Namespace) -> int:
    from mu2mpi.cli.program import parse
    from mu2mpi.cluster.launcher import OutputFiles, SignalForwarder, default_rank_count, launch
    from mu2mpi.core.registry import import_flags
    from mu2mpi.execution.signals import STOP_SIGNALS, signal_handlers

    if not arguments.words:
        arguments.parser.error(
            "The command to start is missing. Name it, such as: mu2mpi launch run --seed 1"
        )
    if arguments.ranks is not None and arguments.ranks < 1:
        arguments.parser.error(f"--ranks must be at least 1, got {arguments.ranks}")
    signals = SignalForwarder()
    with signal_handlers(dict.fromkeys(STOP_SIGNALS, signals)):
        ranks = arguments.ranks or default_rank_count()
        # Parse here, so that bad input is reported before any rank is started.
        what = parse(arguments.words)
        paths = what.command.outputs(what, ranks) if hasattr(what.command, "outputs") else []
        outputs = OutputFiles(paths, getattr(what, "overwrite", False))
        return launch([*import_flags(), *arguments.words], outputs, ranks, arguments.requeues, signals)
