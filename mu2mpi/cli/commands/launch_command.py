"""Start another command on all ranks of a job, and requeue it if it stops.

Chooses mpirun or srun, whichever starts ranks that find each other, and forwards signals to them. Succeeds
only if rank 0 reports success. Ends ranks without progress. Requeues a SLURM job that stopped or lost ranks,
but after the first requeue only if a new round was saved.
"""

from argparse import REMAINDER, ArgumentParser, Namespace


def add_arguments(parser: ArgumentParser) -> None:
    ranks_help = "number of ranks [default: MU2MPI_RANKS, the job's, or 1]"
    parser.add_argument("--ranks", type=int, metavar="N", help=ranks_help)
    requeues_help = "maximal number of requeues [default: 20]"
    parser.add_argument("--requeues", type=int, default=20, metavar="N", help=requeues_help)
    stall_help = "minutes without progress after which the ranks are ended; 0 for never [default: 10]"
    parser.add_argument("--stall-minutes", type=float, default=10.0, metavar="MINUTES", help=stall_help)
    command_help = "command to start, such as: run --seed 1"
    parser.add_argument("words", nargs=REMAINDER, metavar="COMMAND ...", help=command_help)


def run_command(arguments: Namespace) -> int:
    from mu2mpi.cli.program import parse
    from mu2mpi.cluster.launcher import RankRunner, default_rank_count, launch_ranks
    from mu2mpi.core.files import file_identity
    from mu2mpi.core.registry import import_option_arguments
    from mu2mpi.core.signals import STOP_SIGNALS, installed_signal_handlers

    if not arguments.words:
        message = "The command to start is missing. Name it, such as: mu2mpi launch run --seed 1"
        arguments.parser.error(message)
    if arguments.ranks is not None and arguments.ranks < 1:
        arguments.parser.error(f"--ranks must be at least 1, got {arguments.ranks}")
    if not arguments.stall_minutes >= 0:
        arguments.parser.error(f"--stall-minutes must be at least 0, got {arguments.stall_minutes}")
    runner = RankRunner()
    with installed_signal_handlers(dict.fromkeys(STOP_SIGNALS, runner)):
        ranks = arguments.ranks or default_rank_count()
        # Parse here, so that bad input is reported before any rank is started.
        parsed = parse(arguments.words)
        results, stall_seconds = {}, float("inf")  # Commands without results report no progress.
        if hasattr(parsed.command, "output_paths"):
            paths, overwrite = parsed.command.output_paths(parsed, ranks), getattr(parsed, "overwrite", False)
            results = {path: file_identity(path) if overwrite else None for path in paths}
            stall_seconds = 60 * arguments.stall_minutes or float("inf")
        command = [*import_option_arguments(), *arguments.words]
        return launch_ranks(command, results, ranks, arguments.requeues, stall_seconds, runner)
