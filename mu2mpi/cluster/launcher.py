"""Launch of the ranks of a cluster job: number of ranks, signal forwarding, and requeues."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from types import FrameType

from mu2mpi.cluster import slurm
from mu2mpi.cluster.launcher_search import env_prefix, find_launcher
from mu2mpi.cluster.slurm import print_status
from mu2mpi.core.errors import EXIT_INTERRUPTED, InputError, Interrupted
from mu2mpi.core.files import FileIdentity, file_identity
from mu2mpi.core.memory import out_of_memory_kills
from mu2mpi.core.rank_report import RANK_REPORT_VARIABLE, RankReport, rank_report_file, read_rank_report
from mu2mpi.results.records import checkpoint_path

MAX_RANK_STOP_SECONDS = 5.0  # From SIGTERM until a requeue, even if ranks have not stopped yet
MAX_EXIT_SECONDS = 30  # From the exit code of rank 0 until the launcher of the ranks must have ended
POLL_SECONDS = 1.0  # Interval at which the report of rank 0 is read
MIN_STALL_ROUNDS = 100  # Mean durations of a round without progress before the ranks are ended
START_UP_FACTOR = 6  # Ratio of the time allowed for start-up and for reading the data to that of rounds
ResultFiles = Mapping[Path, FileIdentity | None]  # Result files of a command; older files do not count
RANKS_VARIABLE = "MU2MPI_RANKS"

# Defaults for ranks. Open MPI from PyPI binds ranks to cores outside of the job, and waits in a busy loop.
DEFAULT_RANK_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}


def default_rank_count() -> int:
    """Return the number of ranks to start, from MU2MPI_RANKS or the SLURM job; 1 if neither is set."""
    in_job = bool(os.environ.get("SLURM_JOB_ID"))
    for name in (RANKS_VARIABLE, "SLURM_NTASKS") if in_job else (RANKS_VARIABLE,):
        if text := os.environ.get(name):
            if not text.isdecimal() or int(text) < 1:
                raise InputError(f"{name} must be at least 1, got {text!r}.")
            return int(text)
    if in_job and os.environ.get("SLURM_TASKS_PER_NODE", "1") != "1":
        raise InputError(
            "this SLURM job has several tasks per node, but no number of ranks. Submit it with --ntasks=N, "
            f"set {RANKS_VARIABLE}, or use mu2mpi launch --ranks N."
        )
    return 1


class RankRunner:
    """Runs the ranks; as a signal handler, forwards signals to them as SIGUSR1."""

    def __init__(self) -> None:
        self.received_signals: set[int] = set()
        self.interrupts_action = False  # Whether a signal raises Interrupted
        self._process: subprocess.Popen[bytes] | None = None  # Launcher of the ranks
        self._stop_deadline = float("inf")  # Monotonic time by which the ranks should have stopped

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Record a received signal and forward it to the ranks; handler for `signal.signal`."""
        self.received_signals.add(number)
        if number == signal.SIGTERM:
            self._stop_deadline = min(self._stop_deadline, monotonic() + MAX_RANK_STOP_SECONDS)
        if self._process is not None:
            self._process.send_signal(signal.SIGUSR1)
        elif self.interrupts_action:
            raise Interrupted(0)

    def run_interruptibly(self, action: Callable[[], list[str]]) -> list[str]:
        """Run a function before the ranks start; a received signal raises Interrupted."""
        self.interrupts_action, self._process = True, None
        try:
            if self.received_signals:
                raise Interrupted(0)
            return action()
        finally:
            self.interrupts_action = False

    def run_ranks(
        self,
        command: Sequence[str],
        environment: dict[str, str],
        stall_seconds: float,
        on_timeout: Callable[[], object],
    ) -> int:
        """Run the ranks and return their exit code; `on_timeout` is called if they ignore SIGTERM.

        Ranks that make no progress for `stall_seconds`, see `idle_limit`, are ended.
        """
        report_path, report, idle_seconds = Path(environment[RANK_REPORT_VARIABLE]), RankReport(), 0.0
        self._process = process = subprocess.Popen(command, env=environment)
        if self.received_signals:
            process.send_signal(signal.SIGUSR1)
        while process.poll() is None and monotonic() < self._stop_deadline:
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=POLL_SECONDS)
                break
            previous_report, report = report, read_rank_report(report_path)
            # Intervals are counted, so that a time for which SLURM suspends the job is none without progress.
            idle_seconds = idle_seconds + POLL_SECONDS if report == previous_report else 0.0
            if idle_seconds >= idle_limit(report, stall_seconds):
                minutes = f"{idle_seconds / 60:.3g} minutes"
                print_status(f"ending the ranks: no progress for {minutes} after round {report.rounds_done}")
                _end_processes(process, report_path)
        if process.returncode is None:
            on_timeout()
        code = process.wait()
        return code if code >= 0 else 128 - code  # As shells: 128 + N for signal N


def idle_limit(report: RankReport, stall_seconds: float) -> float:
    """Seconds without a change of the report of rank 0 after which the ranks are ended."""
    if report.exit_code is not None:
        return MAX_EXIT_SECONDS
    if report.round_seconds == 0:
        return START_UP_FACTOR * stall_seconds
    return max(stall_seconds, MIN_STALL_ROUNDS * report.round_seconds)


def _end_processes(launcher: "subprocess.Popen[bytes]", report_path: Path) -> None:
    """Terminate the launcher of the ranks, and kill all processes of this host that have the report."""
    launcher.terminate()
    with suppress(subprocess.TimeoutExpired):
        launcher.wait(timeout=MAX_RANK_STOP_SECONDS)
    # Launchers put ranks into process groups of their own, and leave those that are stopped.
    variable = f"{RANK_REPORT_VARIABLE}={report_path}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if variable in path.read_bytes().split(b"\0"):
                os.kill(int(path.parent.name), signal.SIGKILL)
    launcher.kill()


def are_complete(results: ResultFiles) -> bool:
    """Whether all result files exist, and no checkpoint file is left."""
    return bool(results) and all(
        file_identity(path) not in (None, old_file) and not checkpoint_path(path).exists()
        for path, old_file in results.items()
    )


def launch_ranks(
    arguments: Sequence[str],
    results: ResultFiles,
    ranks: int,
    max_requeues: int,
    stall_seconds: float,
    runner: RankRunner,
) -> int:
    """Run ``mu2mpi ARGUMENTS`` on `ranks` ranks and return the exit code; requeue an unfinished SLURM job."""
    if slurm.requeue_count() > 0 and are_complete(results):
        print_status("all results exist since an earlier start of this job")
        return 0
    environment = {**DEFAULT_RANK_ENVIRONMENT, **os.environ}
    if os.getuid() == 0:
        environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def requeue_if_unfinished() -> bool:
        return _requeue_unfinished(read_rank_report(path), runner.received_signals, max_requeues)

    folder = min(results, default=Path("result")).absolute().parent
    with rank_report_file(folder, slurm.job_id() or "0", slurm.requeue_count()) as path:
        environment[RANK_REPORT_VARIABLE], initial_kills = str(path), out_of_memory_kills()
        try:
            launcher = runner.run_interruptibly(lambda: find_launcher(ranks, environment))
        except Interrupted:
            print_status("stopped by a signal before the ranks were started")
            return EXIT_INTERRUPTED if requeue_if_unfinished() else 128 + min(runner.received_signals)
        except InputError:
            if slurm.all_nodes_respond():
                raise
            print_status("no launcher works, since a node of this job does not respond")
            return EXIT_INTERRUPTED if requeue_if_unfinished() else 1
        program = [sys.executable, "-m", "mu2mpi", *arguments]
        print_status(f"starting {ranks} ranks: {shlex.join([*launcher, *program])}")
        command = [*launcher, *env_prefix(environment), *program]
        code = runner.run_ranks(command, environment, stall_seconds, requeue_if_unfinished)
        reported_code = read_rank_report(path).exit_code
        if reported_code is None and code in (2, EXIT_INTERRUPTED):
            reported_code = code  # Rank 0 could not write its report, and has exited with the code itself.
        if reported_code is not None and reported_code != EXIT_INTERRUPTED:
            return reported_code
        if reported_code is None:
            if are_complete(results):
                print_status("the ranks ended without a report of rank 0, but all results exist")
                return 0
            if out_of_memory_kills() > initial_kills or slurm.is_out_of_memory():
                advice = "Request more (--mem-per-cpu) or use fewer ranks per node, and submit the job again"
                print_status(f"a process was killed because it was out of memory. {advice}")
                return code or 1
            print_status(f"the ranks ended with code {code}, unreported: a rank or a node may be lost")
        return EXIT_INTERRUPTED if requeue_if_unfinished() else reported_code or code or 1


def _requeue_unfinished(report: RankReport, received_signals: set[int], max_requeues: int) -> bool:
    if slurm.job_id() is None:
        return False
    cause = slurm.termination_cause() if signal.SIGTERM in received_signals else None
    if signal.SIGINT in received_signals or cause == "user":
        refusal = "it was cancelled"
    elif cause == "requeue":
        refusal = "it has been requeued already"
    elif slurm.requeue_count() > 0 and not report.has_new_rounds:
        refusal = "no new round was saved since the last requeue. Submit it again to resume"
    else:
        return slurm.requeue_job(max_requeues)
    print_status(f"this job is not requeued: {refusal}")
    return False
