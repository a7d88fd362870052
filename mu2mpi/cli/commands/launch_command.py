"""Start another command on all ranks of a job, and requeue it if it stops.

Chooses mpirun or srun, whichever starts ranks that find each other, and forwards signals to them. Succeeds
only if rank 0 writes an exit report of success. Requeues a SLURM job that stopped or lost ranks.
"""

from argparse import REMAINDER, ArgumentParser, Namespace


def add_arguments(parser: ArgumentParser) -> None:
    ranks_help = "number of ranks [default: MU2MPI_RANKS, the job's, or 1]"
    parser.add_argument("--ranks", type=int, metavar="N", help=ranks_help)
    requeues_help = "maximal number of requeues [default: 20]"
    parser.add_argument("--requeues", type=int, default=20, metavar="N", help=requeues_help)
    command_help = "command to start, such as: run --seed 1"
    parser.add_argument("words", nargs=REMAINDER, metavar="COMMAND ...", help=command_help)


def execute(arguments: Namespace) -> int:
    from mu2mpi.cli.program import parse
    from mu2mpi.cluster.launcher import OutputFiles, SignalForwarder, default_rank_count, launch
    from mu2mpi.core.registry import import_flags
    from mu2mpi.execution.signals import STOP_SIGNALS, signal_handlers

    if not arguments.words:
        message = "The command to start is missing. Name it, such as: mu2mpi launch run --seed 1"
        arguments.parser.error(message)
    if arguments.ranks is not None and arguments.ranks < 1:
        arguments.parser.error(f"--ranks must be at least 1, got {arguments.ranks}")
    signals = SignalForwarder()
    with signal_handlers(dict.fromkeys(STOP_SIGNALS, signals)):
        ranks = arguments.ranks or default_rank_count()
        # Parse here, so that bad input is reported before any rank is started.
        parsed = parse(arguments.words)
        paths = parsed.command.outputs(parsed, ranks) if hasattr(parsed.command, "outputs") else []
        outputs = OutputFiles(paths, getattr(parsed, "overwrite", False))
        return launch([*import_flags(), *arguments.words], outputs, ranks, arguments.requeues, signals)
