"""Run of an experiment with its files: resume from a checkpoint, write checkpoints and the result."""

import errno
import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np

from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError, Interrupted
from mu2mpi.core.files import FileIdentity, FileLock, file_identity
from mu2mpi.core.options import CHECKPOINT_INTERVAL_SECONDS
from mu2mpi.core.parallel import CallerComm, Communicator, duplicate_or_world, world
from mu2mpi.core.signals import recording_stop_requests
from mu2mpi.core.text import warn
from mu2mpi.data.memory import MemoryData
from mu2mpi.data.source import DataSource
from mu2mpi.execution import environment
from mu2mpi.execution.plan import (
    Plan,
    check_data_on_ranks,
    check_inputs_on_ranks,
    check_settings_on_ranks,
    open_source_on_ranks,
    resolve_plan,
)
from mu2mpi.execution.progress import progress_callback
from mu2mpi.execution.resume import check_checkpoint_arrays, check_data_unchanged, find_checkpoint
from mu2mpi.execution.simulation import CheckpointAction, PeriodicCheckpoints, Simulation
from mu2mpi.results.callbacks import Callback, CallbackList, check_callbacks
from mu2mpi.results.checkpoint import remove_checkpoint, write_checkpoint
from mu2mpi.results.reader import read_experiment, read_result
from mu2mpi.results.records import Checkpoint, checkpoint_path
from mu2mpi.results.result import Result
from mu2mpi.results.writer import check_output, write_result

OTHER_JOB_ERROR = (
    "another job computes {}, with the checkpoint {}. This job has sent nothing. "
    "Wait for the other, or name another output."
)
DISK_FULL_ADVICE = "Free space or raise the quota, and repeat the command or submit the job again"
LOCK_LEASE_SECONDS = 120.0  # Wait of a requeued job for locks that a file server keeps after losing a node


def run(
    experiment: Experiment | Mapping[str, Any],
    *,
    data: Any = None,
    target: str | None = None,
    schema: Mapping[str, Any] | Path | str | None = None,
    test: Any = None,
    output: Path | str | None = None,
    data_dir: Path | str | None = None,
    overwrite: bool = False,
    callbacks: Sequence[Callback] = (),
    progress: bool = False,
    checkpoint_every: float = CHECKPOINT_INTERVAL_SECONDS,
    comm: CallerComm = None,
) -> Result:
    """Run an experiment on all ranks of the job, or of a communicator.

    Parameters
    ----------
    experiment : Experiment or dict
        The experiment, or its settings by name; equal on every rank.
    data : pair of arrays (X, y), data frame or mapping of columns, optional
        Samples in memory, in place of the setting `data`. Those of rank 0 are sent to all ranks.
    target : str, optional
        Column of the labels in `data`, in place of the setting `labels`.
    schema : dict or path, optional
        Declarations of the columns, as in TOML, for a data frame or a mapping of columns.
    test : like data, optional
        Test samples in memory, which are taken to be public; by default a share of `data`.
    output : path, optional
        Result file; a run without one writes nothing. A run with one resumes from the checkpoint beside it.
    data_dir : path, optional
        Folder with one folder per data set; ``MU2MPI_DATA_DIR`` or the user's cache by default.
    overwrite : bool, optional
        Replace an existing output.
    callbacks : sequence of Callback, optional
        Callbacks called on rank 0 during the run.
    progress : bool, optional
        Show progress on standard error: a bar on a terminal or in a notebook, plain lines elsewhere.
    checkpoint_every : float, optional
        Seconds between two checkpoints.
    comm : mpi4py.MPI.Intracomm, optional
        Communicator whose ranks all make this call, such as ``MPI.COMM_SELF``; a duplicate of it is used.

    Returns
    -------
    Result
        Equal on every rank, except for `diagnostics`, which only rank 0 has.

    Raises
    ------
    InputError
        If the experiment, the data, the output or its checkpoint cannot be used, before anything is written;
        or if a callback failed. Like all exceptions it is raised on every rank.
    OSError
        If the result cannot be written.
    Interrupted
        If SIGUSR1, SIGUSR2, SIGTERM or Ctrl-C stopped a run with an output; a `SystemExit` with code 75.

    Examples
    --------
    >>> result = mu2mpi.run({"machines": 4, "epsilon": 2, "server": "trusted", "seed": 1}, output="a.h5")
    >>> result.privacy.epsilon_exact <= 2
    True
    """
    all_callbacks = [*callbacks, *([progress_callback()] if progress else [])]
    with duplicate_or_world(comm) as communicator:
        memory = MemoryData.share(communicator, data, target, schema, test)
        with communicator.collective_errors():
            check_callbacks(callbacks)
            if isinstance(experiment, Experiment):
                experiment = experiment.replace(**memory.settings)
            else:
                experiment = Experiment.from_settings({**experiment, **memory.settings})
        check_settings_on_ranks([experiment], communicator)
        location = memory.location(data_dir)
        if output is None:
            # Signals keep their usual handlers, as there is no file for a checkpoint.
            source = open_source_on_ranks(experiment, location, communicator)
            plan = _resolve_plan_on_ranks(experiment, source, communicator)
            check_inputs_on_ranks(plan, communicator)
            callback_list = CallbackList(all_callbacks)
            return callback_list.on_finish(Simulation(plan, communicator).run(callback_list), communicator)
        path, outputs = Path(output), {}
        with recording_stop_requests() as requests:
            with communicator.collective_errors():
                if communicator.rank == 0:
                    # Recorded before the check, so that files written by other jobs from here on are noticed.
                    outputs[path] = file_identity(path)
                    check_output(path, overwrite)
            context = RunContext(communicator, lambda: requests.pending, overwrite, checkpoint_every, outputs)
            source = open_source_on_ranks(experiment, location, communicator)
            return context.run_to_file(experiment, source, path, all_callbacks)


def prepare_simulation(
    experiment: Experiment, output: Path, data_dir: Path | None = None, overwrite: bool = False
) -> Simulation:
    """Prepare a run up to its first message, without writing anything; raises as `run` does; collective."""
    communicator = world()
    check_settings_on_ranks([experiment], communicator)
    with communicator.collective_errors():
        if communicator.rank == 0:
            check_output(output, overwrite)
    source = open_source_on_ranks(experiment, data_dir, communicator)
    context = RunContext(communicator, lambda: False, overwrite, math.inf)
    with closing(FileLock(output)) as lock:
        return context.prepare(experiment, source, output, lock)[0]


def _resolve_plan_on_ranks(experiment: Experiment, source: DataSource, communicator: Communicator) -> Plan:
    with communicator.collective_errors():
        return resolve_plan(experiment, source, communicator.size)


@dataclass(frozen=True)
class RunContext:
    """Settings of a program for output files, checkpoints and signals of its runs; rank 0 handles files."""

    communicator: Communicator
    stop_requested: Callable[[], bool]  # whether a signal has requested this rank to stop
    overwrite: bool  # replace existing outputs
    checkpoint_every: float  # seconds between two checkpoints
    # Identities of the outputs when the program began; None for those that did not exist
    output_file_identities: Mapping[Path, FileIdentity | None] = field(default_factory=dict)

    def run_to_file(
        self,
        experiment: Experiment,
        source: DataSource,
        path: Path,
        callbacks: Sequence[Callback] = (),
        plan: Plan | None = None,
    ) -> Result:
        """Run an experiment from its checkpoint, if any, and write the result; raises like `run`."""
        communicator, callback_list = self.communicator, CallbackList(callbacks, str(path))
        with closing(FileLock(path)) as lock:
            simulation, resumes = self.prepare(experiment, source, path, lock, plan)
            checkpoints = FileCheckpoints(self, path, callback_list)
            # Write the first checkpoint before the first message.
            if not resumes:
                checkpoints.write_first(simulation.gather_checkpoint(), lock)
            # Run the remaining rounds, write the result and remove the checkpoint.
            result = simulation.run(callback_list, checkpoints)
            with communicator.collective_errors():
                if communicator.rank == 0:
                    self._write_result(result, path)
                    checkpoints.write_progress(0, 0.0, True)
        return callback_list.on_finish(replace(result, path=path), communicator)

    def prepare(
        self, experiment: Experiment, source: DataSource, path: Path, lock: FileLock, plan: Plan | None = None
    ) -> tuple[Simulation, bool]:
        """Return a run that passed all checks, and whether it resumes from a checkpoint, which is locked."""
        communicator = self.communicator
        # 1. Find the checkpoint, if any.
        checkpoint: Checkpoint | None = None
        numeric_platforms = environment.numeric_platforms(communicator)
        with communicator.collective_errors():
            if communicator.rank == 0 and checkpoint_path(path).exists():
                lock_output(lock, path)
                checkpoint = find_checkpoint(path, experiment, numeric_platforms)
        resumed = (True, checkpoint.experiment) if checkpoint else (False, experiment)
        resumes, experiment = communicator.bcast_object(resumed)
        # 2. Check the data before the settings, as settings of the checkpoint need not suit other data.
        if resumes:
            check_data_on_ranks(source, communicator)
            with communicator.collective_errors():
                if checkpoint is not None:
                    check_data_unchanged(checkpoint, source, path)
        # 3. Resolve the plan, and check the state of the checkpoint and the inputs of all ranks.
        plan = plan or _resolve_plan_on_ranks(experiment, source, communicator)
        with communicator.collective_errors():
            if checkpoint is not None:
                check_checkpoint_arrays(checkpoint, plan, path)
        check_inputs_on_ranks(plan, communicator)
        return Simulation(plan, communicator, checkpoint), resumes

    def _write_result(self, result: Result, path: Path) -> None:
        """Write the result file, unless another job wrote the same result, and remove the checkpoint."""
        checkpoint = checkpoint_path(path)
        try:
            write_result(result, path, self.overwrite and not self.other_job_changed(path))
        except OSError as error:
            problem = f"cannot write the result {path}: {error.strerror or error}"
            remedy = f"Remove the cause and repeat the command to resume from {checkpoint}, which is kept."
            raise OSError(f"{problem}. {remedy}") from None
        except InputError:
            if not self.other_job_changed(path):
                raise
            # Two jobs that resumed from one checkpoint have the same key, and so the same bits.
            if not (is_result_of(path, result.experiment) and np.array_equal(read_result(path).x, result.x)):
                lost = "This result is lost, and to repeat the command would send everything once more."
                kept = f"Move {path} away and repeat the command to resume from {checkpoint}, which is kept."
                remedy = kept if checkpoint.exists() else lost
                raise InputError(
                    f"another job has written {path} in the meantime, so that the result of this one is not "
                    f"saved; both have spent privacy, and their rho add up as squares. {remedy}"
                ) from None
        remove_checkpoint(checkpoint)

    def other_job_changed(self, path: Path) -> bool:
        """Return whether another job has written or removed an output file since this program began."""
        return file_identity(path) != self.output_file_identities.get(path)


def lock_output(lock: FileLock, output: Path) -> None:
    """Lock an output for this job, on rank 0; InputError if another job computes it."""
    deadline = monotonic() + (LOCK_LEASE_SECONDS if os.environ.get("SLURM_RESTART_COUNT") else 0)
    while True:
        try:
            return lock.acquire()
        except BlockingIOError:
            if monotonic() >= deadline:
                raise InputError(OTHER_JOB_ERROR.format(output, checkpoint_path(output))) from None
        sleep(1)


def is_result_of(path: Path, experiment: Experiment) -> bool:
    """Return whether a result file holds the complete result of an experiment."""
    try:
        return read_experiment(path) == experiment
    except InputError:
        return False


class FileCheckpoints(PeriodicCheckpoints):
    """Periodic checkpoints in a file beside the output, written by rank 0."""

    def __init__(self, context: RunContext, output: Path, callback_list: CallbackList) -> None:
        super().__init__(context.communicator, context.stop_requested, context.checkpoint_every)
        self._context, self._output, self._callback_list = context, output, callback_list

    def save(self, action: CheckpointAction, checkpoint: Checkpoint | None) -> None:
        """Write a checkpoint; raise Interrupted if the run stops, and else OSError on a full disk only."""
        is_written = self._write(checkpoint, is_optional=action is not CheckpointAction.SAVE_AND_STOP)
        if checkpoint is not None and is_written:
            has_new_rounds = checkpoint.rounds_done >= self.start_round
            self.write_progress(checkpoint.rounds_done, self.round_seconds, has_new_rounds)
            self._callback_list.notify("on_checkpoint", checkpoint.rounds_done)
        self._callback_list.raise_failure(self._communicator)
        if action is CheckpointAction.SAVE_AND_STOP:
            rounds_done = 0 if checkpoint is None else checkpoint.rounds_done
            raise Interrupted(self._communicator.bcast_object(rounds_done))

    def write_first(self, checkpoint: Checkpoint | None, lock: FileLock) -> None:
        """Write the first checkpoint of a run; raise InputError on every rank if another job began the run.

        The checkpoint reserves the output for this job. It also keeps the noise key of a run without a seed:
        with a new key, a restart would send the same secrets under other noise.
        """
        with self._communicator.collective_errors():
            if checkpoint is not None:
                lock_output(lock, self._output)
        self._write(checkpoint, replace=False)
        with self._communicator.collective_errors():
            # A finishing job writes its result before it removes its checkpoint: one of the two is seen.
            if checkpoint is not None and self._context.other_job_changed(self._output):
                checkpoint_path(self._output).unlink()
                raise InputError(
                    f"another job has written {self._output} since this one began, which has sent nothing. "
                    "Name another output, or repeat the command with --overwrite to replace it."
                )

    def _write(self, checkpoint: Checkpoint | None, replace: bool = True, is_optional: bool = False) -> bool:
        """Return whether a checkpoint was written; for an optional one, only a full disk is an error."""
        path = checkpoint_path(self._output)
        with self._communicator.collective_errors():
            try:
                if checkpoint is not None:
                    write_checkpoint(checkpoint, path, replace)
                    return True
            except FileExistsError:
                raise InputError(OTHER_JOB_ERROR.format(self._output, path)) from None
            except OSError as error:
                older = "the previous one is kept" if path.exists() else "there is none"
                problem = f"cannot write the checkpoint {path}: {error.strerror}; {older}"
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise OSError(f"{problem}. {DISK_FULL_ADVICE}") from None
                if not is_optional:
                    raise OSError(problem) from None
                warn(f"{problem}; the run continues")
        return False
