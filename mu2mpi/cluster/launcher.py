"""Start the ranks of a job by a launcher that works, see them through, and requeue the job if need be."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from types import FrameType

from mu2mpi.cluster import exit_report, slurm
from mu2mpi.cluster.slurm import say
from mu2mpi.core.errors import EXIT_INTERRUPTED, InputError
from mu2mpi.core.files import Identity, identity
from mu2mpi.results.records import checkpoint_path

LONGEST_STOP = 5.0  # seconds from SIGTERM until a requeue, even if ranks have not stopped yet
FRESH_STARTS = 3  # how often a job starts again after an end without word and without progress
RANKS_VARIABLE, LAUNCHER_VARIABLE = "MU2MPI_RANKS", "MU2MPI_LAUNCHER"

# One write a rank, since launchers mix what ranks write in pieces.
PROBE = "import os; from mpi4py import MPI; os.write(1, b'%d\\n' % MPI.COMM_WORLD.Get_size())"
PROBE_SECONDS = 60

# Of these, launchers pass on to other hosts what they happen to.
CARRIED = re.compile("MU2MPI_.*|PYTHONPATH|(OMP|NUMBA)_NUM_THREADS")

# Open MPI from PyPI binds ranks to cores that a job may not have, and waits for messages in a busy loop.
RANK_VARIABLES = {
    "OMP_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}


def ranks_of_job() -> int:
    """Return the number of ranks by MU2MPI_RANKS or the SLURM job; 1 outside of jobs."""
    in_job = bool(os.environ.get("SLURM_JOB_ID"))
    for name in (RANKS_VARIABLE, "SLURM_NTASKS") if in_job else (RANKS_VARIABLE,):
        if text := os.environ.get(name):
            if not text.isdecimal() or int(text) < 1:
                raise InputError(f"{name} is {text!r}: set it to a number of at least 1")
            return int(text)
    # Such as 8, 4(x2) or 3,1; a job that asks for 8 cores for one task has 1.
    if in_job and os.environ.get("SLURM_TASKS_PER_NODE", "1") != "1":
        raise InputError(
            "this SLURM job has room for several ranks but does not say how many to start: submit it with "
            f"--ntasks=N, set {RANKS_VARIABLE}, or call mu2mpi launch --ranks N"
        )
    return 1


def find_launcher(ranks: int, environment: Mapping[str, str]) -> list[str]:
    """Return the first command that starts this many ranks which find each other; InputError if none does."""
    if ranks == 1:
        return []
    # A second time, since a probe may have met the loss of a node, or of a process.
    for _ in range(2):
        problems = []
        for candidate in _candidates(ranks):
            problem = _problem(candidate, ranks, environment)
            if problem is None:
                return candidate
            problems.append(f"{shlex.join(candidate)}: {problem}")
            say(f"not with {problems[-1].splitlines()[0]}")
    way_out = f"Set {LAUNCHER_VARIABLE} to the command that does, such as 'srun --mpi=pmix -n {ranks}'"
    listed = "\n  ".join([f"no launcher starts {ranks} ranks that find each other:", *problems])
    raise InputError(f"{listed}\n{way_out}")


def _carried(environment: Mapping[str, str]) -> list[str]:
    """Return the beginning of a command that gives ranks on all hosts what they need of this environment."""
    return ["env", *(f"{name}={value}" for name, value in environment.items() if CARRIED.fullmatch(name))]


def _candidates(ranks: int) -> list[list[str]]:
    if chosen := os.environ.get(LAUNCHER_VARIABLE):
        try:
            return [shlex.split(chosen)]
        except ValueError as error:
            raise InputError(f"{LAUNCHER_VARIABLE} is no command: {error}") from None
    ours, count = Path(sys.executable).parent / "mpirun", ["-n", str(ranks)]
    mpirun = str(ours) if ours.exists() else shutil.which("mpirun")
    candidates = [[mpirun, *count]] if mpirun else []
    if shutil.which("srun") and "SLURM_JOB_ID" in os.environ:
        kinds = ("--mpi=pmix", "--mpi=pmi2", "--mpi=none")
        candidates += [["srun", kind, "--kill-on-bad-exit=1", *count] for kind in kinds]
    return candidates


def _problem(launcher: Sequence[str], ranks: int, environment: Mapping[str, str]) -> str | None:
    """Try a launcher on a tiny program; return what is wrong with it and what it printed last, or None."""
    command = [*launcher, *_carried(environment), sys.executable, "-c", PROBE]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_SECONDS, env=environment)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    sizes = done.stdout.split()
    if done.returncode == 0 and sizes == [str(ranks)] * ranks:
        return None
    what = f"its ranks see {', '.join(sorted(set(sizes))) or 'no'} ranks"
    if done.returncode != 0:
        what = f"it ends with code {done.returncode}"
    return "\n    ".join([what, *[line for line in done.stderr.splitlines() if line.strip()][-12:]])


class Outputs:
    """Results and checkpoints of a command; with `overwrite` only a new result counts."""

    def __init__(self, paths: Sequence[Path], overwrite: bool = False) -> None:
        self.results, self._overwrite = {*paths}, overwrite
        self._before = self._now()

    def folder(self) -> Path:
        """Return the nearest existing folder of those in which the results will lie."""
        lowest = min(self.results, default=Path("result")).parent
        return next(folder for folder in (lowest, *lowest.absolute().parents) if folder.is_dir())

    def have_moved_on(self) -> bool:
        """Return whether there is a result or a checkpoint which was not there before."""
        return any(self._before.get(path) != found for path, found in self._now().items())

    def are_complete(self) -> bool:
        """Return whether all results are there, and no checkpoint of one is left."""
        now = self._now()
        old = {path for path, found in self._before.items() if self._overwrite and now.get(path) == found}
        return bool(self.results) and now.keys() - old == self.results

    def _now(self) -> dict[Path, Identity | None]:
        wanted, there = self.results | {checkpoint_path(path) for path in self.results}, set()
        # A look into the folder instead of one for each of what may be thousands of files.
        for folder in {path.parent for path in self.results}:
            with suppress(OSError):
                there |= wanted & {*folder.iterdir()}
        return {path: identity(path) for path in there}


class StoppedError(Exception):
    """A signal came before the ranks were started."""


class Signals:
    """Takes note of signals and passes them on to the ranks, as SIGUSR1; ends what comes before these."""

    def __init__(self) -> None:
        self.seen: set[int] = set()
        self.may_raise = False
        self._process: subprocess.Popen[bytes] | None = None
        self._late_at = float("inf")

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Take note of a signal."""
        self.seen.add(number)
        if number == signal.SIGTERM:
            self._late_at = min(self._late_at, monotonic() + LONGEST_STOP)
        if self._process is not None:
            self._process.send_signal(signal.SIGUSR1)
        elif self.may_raise:
            raise StoppedError

    def before_ranks(self, action: Callable[[], list[str]]) -> list[str]:
        """Return what an action does that a signal may break off, with StoppedError."""
        self.may_raise = True
        try:
            if self.seen:
                raise StoppedError
            return action()
        finally:
            self.may_raise = False

    def wait_for(
        self, command: Sequence[str], environment: dict[str, str], when_late: Callable[[], object]
    ) -> int:
        """Start ranks, return the code of their launcher; call `when_late` if SIGTERM ends them late."""
        self._process = process = subprocess.Popen(command, env=environment)
        if self.seen:
            process.send_signal(signal.SIGUSR1)
        while process.returncode is None and monotonic() < self._late_at:
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=1)
        if process.returncode is None:
            when_late()
        code = process.wait()
        # As shells give it: more than 128 for a signal.
        return code if code >= 0 else 128 - code


def launch(arguments: Sequence[str], outputs: Outputs, ranks: int, requeues: int, signals: Signals) -> int:
    """Start ``mu2mpi ARGUMENTS`` on this many ranks, see them through, and return the code that rank 0 left.

    A SLURM job whose run is not finished is requeued, at most `requeues` times, unless a person ended it.
    """
    if slurm.restarts() > 0 and outputs.are_complete():
        say("the results are there, from an earlier start of this job")
        return 0
    environment = {**RANK_VARIABLES, **os.environ}
    if os.getuid() == 0:
        environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def goes_on(left: int | None) -> bool:
        return _is_requeued(left, outputs, signals.seen, requeues)

    with exit_report.place_for_word(outputs.folder(), slurm.job_number() or "0", slurm.restarts()) as place:
        environment[exit_report.VARIABLE] = str(place)
        try:
            launcher = signals.before_ranks(lambda: find_launcher(ranks, environment))
        except StoppedError:
            say("stopped by a signal before the ranks were started")
            return EXIT_INTERRUPTED if goes_on(EXIT_INTERRUPTED) else 128 + min(signals.seen)
        except InputError:
            if slurm.nodes_answer():
                raise
            say("no launcher works, but a node of this job does not answer")
            return EXIT_INTERRUPTED if slurm.requeue(requeues) else 1
        words = [sys.executable, "-m", "mu2mpi", *arguments]
        say(f"starting {ranks} ranks: {shlex.join([*launcher, *words])}")
        command = [*launcher, *_carried(environment), *words]
        code = signals.wait_for(command, environment, when_late=lambda: goes_on(None))
        left = exit_report.read_word(place)
    if left is None and code in (2, EXIT_INTERRUPTED):
        # Rank 0 has said why it could not leave word.
        left = code
    if left is not None and left != EXIT_INTERRUPTED:
        return left
    if left is None:
        if outputs.have_moved_on() and outputs.are_complete():
            say("the ranks ended without word, but all results are there")
            return 0
        say(f"the ranks ended with code {code} but no word of how the run ended: one, or a node, may be lost")
    return EXIT_INTERRUPTED if goes_on(left) else left or code or 1


def _is_requeued(left: int | None, outputs: Outputs, seen: set[int], limit: int) -> bool:
    """Requeue the job around this process if its run should go on; return whether that was done."""
    if slurm.job_number() is None:
        return False
    by = "a person" if signal.SIGINT in seen else "the scheduler" if seen else "nobody"
    if signal.SIGTERM in seen and by != "a person":
        by = slurm.who_ends()
    why_not = {
        "a requeue": "this job is in the queue again",
        "a person": "this job is not put back into the queue: it was cancelled",
    }.get(by)
    if by == "nobody" and left is None and not outputs.have_moved_on():
        # Ranks that were lost without word and without progress
        may_start_again = outputs.results and slurm.restarts() < FRESH_STARTS
        if not may_start_again and slurm.nodes_answer():
            why_not = "this job is not put back into the queue: the run has got no further in this start"
    if why_not is not None:
        say(why_not)
        return False
    return slurm.requeue(limit)
