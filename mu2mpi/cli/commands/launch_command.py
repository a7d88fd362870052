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


def run_command(arguments: Namespace) -> int:
    from mu2mpi.cli.program import parse
    from mu2mpi.cluster.launcher import OutputFiles, SignalForwarder, default_rank_count, launch_ranks
    from mu2mpi.core.registry import import_option_arguments
    from mu2mpi.core.signals import STOP_SIGNALS, installed_signal_handlers

    if not arguments.words:
        message = "The command to start is missing. Name it, such as: mu2mpi launch run --seed 1"
        arguments.parser.error(message)
    if arguments.ranks is not None and arguments.ranks < 1:
        arguments.parser.error(f"--ranks must be at least 1, got {arguments.ranks}")
    forwarder = SignalForwarder()
    with installed_signal_handlers(dict.fromkeys(STOP_SIGNALS, forwarder)):
        ranks = arguments.ranks or default_rank_count()
        # Parse here, so that bad input is reported before any rank is started.
        parsed = parse(arguments.words)
        has_results = hasattr(parsed.command, "output_paths")
        paths = parsed.command.output_paths(parsed, ranks) if has_results else []
        outputs = OutputFiles(paths, getattr(parsed, "overwrite", False))
        command = [*import_option_arguments(), *arguments.words]
        return launch_ranks(command, outputs, ranks, arguments.requeues, forwarder)
