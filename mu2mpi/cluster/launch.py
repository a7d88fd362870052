"""Start the ranks of a job and see them through."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from types import FrameType

from mu2mpi.cluster.launchers import RANK_VARIABLES, find_launcher, say
from mu2mpi.errors import EXIT_INTERRUPTED, InputError
from mu2mpi.execution.signals import SIGNALS

KILLED = (signal.SIGKILL, signal.SIGTERM, 128 + signal.SIGKILL, 128 + signal.SIGTERM)


def launch(arguments: Sequence[str], ranks: int | None = None, requeues: int = 20) -> int:
    """Start ``mu2mpi ARGUMENTS`` on the ranks of this job and see it through.

    SIGUSR1, SIGUSR2, SIGTERM and Ctrl-C are passed on to the ranks as SIGUSR1. If the ranks stop with a
    checkpoint, and not because of the last two, the SLURM job is put back into the queue, at most `requeues`
    times. By default there are as many ranks as the SLURM job has, or 1. Returns their exit code; raises
    InputError if no launcher starts ranks that find each other.
    """
    ranks = ranks or _number_in("SLURM_NTASKS", 1)
    environment = {**RANK_VARIABLES, **os.environ}
    if os.getuid() == 0:
        environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    launcher = find_launcher(ranks, environment)
    command = [*launcher, sys.executable, "-m", "mu2mpi", *arguments]
    say(f"starting {ranks} ranks: {shlex.join(command)}")
    pending: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        pending.append(number)
        if process is not None:
            process.send_signal(signal.SIGUSR1)

    process: subprocess.Popen[bytes] | None = None
    for number in SIGNALS:
        signal.signal(number, note)
    process = subprocess.Popen(command, env=environment)
    if pending:
        process.send_signal(signal.SIGUSR1)
    code = process.wait()
    code = code if code >= 0 else 128 - code
    # A launcher may kill the last ranks once the first has ended with code 75, and tell of that instead.
    stopped = code == EXIT_INTERRUPTED or (pending and code in KILLED)
    # After SIGTERM the job was cancelled, or SLURM requeues it on its own; after Ctrl-C it shall end.
    if stopped and not {signal.SIGTERM, signal.SIGINT} & {*pending}:
        _requeue(requeues)
        return EXIT_INTERRUPTED
    return code


def _requeue(limit: int) -> None:
    """Put this SLURM job back into the queue, unless it was there often enough."""
    job = os.environ.get("SLURM_JOB_ID")
    if job is None:
        return
    # The last task of an array has the array's number, and would take the others along.
    if "SLURM_ARRAY_TASK_ID" in os.environ:
        job = f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    restarts = _number_in("SLURM_RESTART_COUNT", 0)
    if restarts >= limit:
        say(f"job {job} was requeued {restarts} times, which is enough; submit it again to go on")
    else:
        say(f"requeueing job {job} ({restarts + 1} of at most {limit} times)")
        subprocess.run(["scontrol", "requeue", job], check=False)


def _number_in(variable: str, least: int) -> int:
    """Return the number that SLURM gives in a variable of the environment; by default, and at least, this."""
    text = os.environ.get(variable) or str(least)
    if not text.isdecimal() or int(text) < least:
        raise InputError(f"{variable} is {text!r}, and no number of at least {least}")
    return int(text)
