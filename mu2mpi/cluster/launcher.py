"""Launch of the ranks of a cluster job: number of ranks, signal forwarding, and requeues."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from types import FrameType

from mu2mpi.cluster import exit_report, slurm
from mu2mpi.cluster.launcher_search import env_prefix, find_launcher, forget_broken_launcher
from mu2mpi.cluster.slurm import print_status
from mu2mpi.core.errors import EXIT_INTERRUPTED, InputError
from mu2mpi.core.files import FileIdentity, file_identity
from mu2mpi.results.records import checkpoint_path

MAX_RANK_STOP_SECONDS = 5.0  # From SIGTERM until a requeue, even if ranks have not stopped yet
MAX_RESTARTS_WITHOUT_PROGRESS = 3  # Restarts of a job after which a lost run without progress is not requeued
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


class OutputFiles:
    """Result and checkpoint files of a launched command; with `overwrite`, older results do not count."""

    def __init__(self, paths: Sequence[Path], overwrite: bool = False) -> None:
        self.results, self._overwrite = {*paths}, overwrite
        self._initial_files = self._existing_files()

    def nearest_existing_folder(self) -> Path:
        """Folder of the result files, or its nearest existing parent."""
        folder = min(self.results, default=Path("result")).parent
        return next(parent for parent in (folder, *folder.absolute().parents) if parent.is_dir())

    def changed_since_launch(self) -> bool:
        """Whether a result or checkpoint was written since this `OutputFiles` was created."""
        now = self._existing_files()
        return any(self._initial_files.get(path) != identity for path, identity in now.items())

    def are_complete(self) -> bool:
        """Whether all result files exist, and no checkpoint file is left."""
        now = self._existing_files()
        old = {path for path, _ in now.items() & self._initial_files.items()} if self._overwrite else set()
        return bool(self.results) and now.keys() - old == self.results

    def _existing_files(self) -> dict[Path, FileIdentity | None]:
        candidates, existing = self.results | {checkpoint_path(path) for path in self.results}, set()
        for folder in {path.parent for path in self.results}:
            with suppress(OSError):
                existing |= candidates & {*folder.iterdir()}
        return {path: file_identity(path) for path in existing}


class SignalBeforeLaunchError(Exception):
    """A signal was received before the ranks were started."""


class SignalForwarder:
    """Signal handler that records signals and forwards them to the ranks as SIGUSR1."""

    def __init__(self) -> None:
        self.received_signals: set[int] = set()
        self.interrupts_action = False  # Whether a signal raises SignalBeforeLaunchError
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
            raise SignalBeforeLaunchError

    def run_interruptibly(self, action: Callable[[], list[str]]) -> list[str]:
        """Run a function before the ranks start; a received signal raises SignalBeforeLaunchError."""
        self.interrupts_action, self._process = True, None
        try:
            if self.received_signals:
                raise SignalBeforeLaunchError
            return action()
        finally:
            self.interrupts_action = False

    def run_ranks(
        self, command: Sequence[str], environment: dict[str, str], on_timeout: Callable[[], object]
    ) -> int:
        """Run the ranks and return their exit code; `on_timeout` is called if they ignore SIGTERM."""
        self._process = process = subprocess.Popen(command, env=environment)
        if self.received_signals:
            process.send_signal(signal.SIGUSR1)
        while process.returncode is None and monotonic() < self._stop_deadline:
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=1)
        if process.returncode is None:
            on_timeout()
        code = process.wait()
        return code if code >= 0 else 128 - code  # As shells: 128 + N for signal N


def launch_ranks(
    arguments: Sequence[str], outputs: OutputFiles, ranks: int, max_requeues: int, forwarder: SignalForwarder
) -> int:
    """Run ``mu2mpi ARGUMENTS`` on `ranks` ranks and return the exit code; requeue an unfinished SLURM job."""
    if slurm.requeue_count() > 0 and outputs.are_complete():
        print_status("all results exist since an earlier start of this job")
        return 0
    environment = {**DEFAULT_RANK_ENVIRONMENT, **os.environ}
    if os.getuid() == 0:
        environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def requeue_if_unfinished(reported_code: int | None) -> bool:
        return _requeue_unfinished(reported_code, outputs, forwarder.received_signals, max_requeues)

    folder, job_id = outputs.nearest_existing_folder(), slurm.job_id() or "0"
    with exit_report.exit_report_file(folder, job_id, slurm.requeue_count()) as path:
        environment[exit_report.EXIT_REPORT_VARIABLE] = str(path)
        try:
            launcher = forwarder.run_interruptibly(lambda: find_launcher(ranks, environment))
        except SignalBeforeLaunchError:
            print_status("stopped by a signal before the ranks were started")
            is_requeued = requeue_if_unfinished(EXIT_INTERRUPTED)
            return EXIT_INTERRUPTED if is_requeued else 128 + min(forwarder.received_signals)
        except InputError:
            if slurm.all_nodes_respond():
                raise
            print_status("no launcher works, since a node of this job does not respond")
            return EXIT_INTERRUPTED if slurm.requeue_job(max_requeues) else 1
        program = [sys.executable, "-m", "mu2mpi", *arguments]
        print_status(f"starting {ranks} ranks: {shlex.join([*launcher, *program])}")
        command = [*launcher, *env_prefix(environment), *program]
        code = forwarder.run_ranks(command, environment, on_timeout=lambda: requeue_if_unfinished(None))
        reported_code = exit_report.read_exit_code(path)
    has_signal_or_progress = bool(forwarder.received_signals) or outputs.changed_since_launch()
    may_be_unconnected = reported_code in (None, 2) and not has_signal_or_progress
    if may_be_unconnected and slurm.all_nodes_respond() and forget_broken_launcher(ranks, environment):
        print_status("the launcher of earlier jobs does not start connected ranks any more")
        return launch_ranks(arguments, outputs, ranks, max_requeues, forwarder)
    if reported_code is None and code in (2, EXIT_INTERRUPTED):
        reported_code = code  # Rank 0 could not write the exit report, and has exited with the code itself.
    if reported_code is not None and reported_code != EXIT_INTERRUPTED:
        return reported_code
    if reported_code is None:
        if outputs.changed_since_launch() and outputs.are_complete():
            print_status("the ranks ended without an exit report, but all results exist")
            return 0
        print_status(f"the ranks ended with code {code} and no exit report: a rank or a node may be lost")
    return EXIT_INTERRUPTED if requeue_if_unfinished(reported_code) else reported_code or code or 1


def _requeue_unfinished(
    reported_code: int | None, outputs: OutputFiles, received_signals: set[int], max_requeues: int
) -> bool:
    if slurm.job_id() is None:
        return False
    cause = "user" if signal.SIGINT in received_signals else "scheduler" if received_signals else None
    if signal.SIGTERM in received_signals and cause != "user":
        cause = slurm.termination_cause()
    refusals = {"requeue": "it has been requeued already", "user": "it was cancelled"}
    refusal = refusals.get(cause or "")
    if cause is None and reported_code is None and not outputs.changed_since_launch():
        may_restart = outputs.results and slurm.requeue_count() < MAX_RESTARTS_WITHOUT_PROGRESS
        if not may_restart and slurm.all_nodes_respond():
            refusal = "the run was lost without progress in this start"
    if refusal is not None:
        print_status(f"this job is not requeued: {refusal}")
        return False
    return slurm.requeue_job(max_requeues)
