"""Runs with their files: resume from a checkpoint, keep new ones, write the result, clean up."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from mu2mpi.config.experiment import Experiment
from mu2mpi.config.task_builder import input_files
from mu2mpi.core.errors import InputError, Interrupted
from mu2mpi.core.files import Identity, identity
from mu2mpi.core.parallel import Communicator, world
from mu2mpi.core.text import warn
from mu2mpi.data.source import Source
from mu2mpi.execution import environment
from mu2mpi.execution.plan import Plan, check_data, check_inputs, check_settings, resolve, shared_source
from mu2mpi.execution.progress import for_standard_error
from mu2mpi.execution.resume import check_same_data, check_state, find_checkpoint
from mu2mpi.execution.signals import CHECKPOINT_SECONDS, stop_requests
from mu2mpi.execution.simulation import Simulation, Verdict, Watch
from mu2mpi.results.callbacks import Audience, Observer
from mu2mpi.results.records import Checkpoint, checkpoint_path
from mu2mpi.results.result import Result


def run(
    experiment: Experiment | Mapping[str, Any],
    *,
    output: Path | str | None = None,
    data_dir: Path | str | None = None,
    overwrite: bool = False,
    observers: Sequence[Observer] = (),
    progress: bool = False,
    checkpoint_every: float = CHECKPOINT_SECONDS,
) -> Result:
    """Run an experiment on all ranks of the job.

    Parameters
    ----------
    experiment : Experiment or dict
        What to run, or its settings by name; the same on every rank.
    output : path, optional
        Where to write the result; nothing is written without it. The run goes on from a checkpoint beside it.
    data_dir : path, optional
        Folder that holds a folder for each data set; by default ``MU2MPI_DATA_DIR`` or the user's cache.
    overwrite : bool, optional
        Replace an output that exists.
    observers : sequence of Observer, optional
        Hear on rank 0 how the run goes, such as a `LiveFigure`.
    progress : bool, optional
        Say so on standard error: with a bar on a terminal or in a notebook, and else in lines.
    checkpoint_every : float, optional
        Seconds between two checkpoints.

    Returns
    -------
    Result
        The same on every rank, but for `diagnostics` and `class_counts`, which rank 0 alone has. All ranks
        also raise the same.

    Raises
    ------
    InputError
        If the experiment, the data, the output or its checkpoint cannot be used; nothing is written then.
        If an observer failed, which is the cause on rank 0.
    OSError
        If the result cannot be written.
    Interrupted
        If SIGUSR1, SIGUSR2, SIGTERM or Ctrl-C stopped a run with an output: a `SystemExit` with code 75.

    Examples
    --------
    >>> result = mu2mpi.run({"machines": 4, "epsilon": 2, "server": "trusted", "seed": 1}, output="a.h5")
    >>> result.privacy.epsilon_exact <= 2
    True
    """
    communicator, heard = world(), [*observers, *([for_standard_error()] if progress else [])]
    if not isinstance(experiment, Experiment):
        with communicator.together():
            experiment = Experiment.make(experiment)
    check_settings([experiment], communicator)
    folder = None if data_dir is None else Path(data_dir)
    if output is None:
        # Without a file to go on from, signals do what they do to any program.
        source, audience = shared_source(experiment, folder, communicator), Audience(heard)
        plan = _resolved(experiment, source, communicator)
        check_inputs(plan, communicator)
        return audience.finish(Simulation(plan, communicator).run(audience), communicator)
    path, before = Path(output), {}
    with stop_requests() as requests:
        with communicator.together():
            if communicator.rank == 0:
                from mu2mpi.results.writer import check_output

                # First what is there, so that what another job writes from here on is seen as another's.
                before[path] = identity(path)
                check_output(path, overwrite)
        job = Job(communicator, lambda: requests.pending, overwrite, checkpoint_every, before)
        return job.run_to_file(experiment, shared_source(experiment, folder, communicator), path, heard)


def _resolved(experiment: Experiment, source: Source, communicator: Communicator) -> Plan:
    with communicator.together():
        return resolve(experiment, source, communicator.size)


@dataclass(frozen=True)
class Job:
    """How this job treats files and signals, whatever it runs. Rank 0 alone touches files, and HDF5."""

    communicator: Communicator
    is_asked: Callable[[], bool]  # whether this rank is to stop
    overwrite: bool
    checkpoint_every: float
    before: Mapping[Path, Identity | None] = field(default_factory=dict)  # the outputs that were there

    def run_to_file(
        self,
        experiment: Experiment,
        source: Source,
        path: Path,
        observers: Sequence[Observer] = (),
        plan: Plan | None = None,
    ) -> Result:
        """Run an experiment, or its settled plan, from its checkpoint, if any; raises like `run`."""
        communicator, audience = self.communicator, Audience(observers, str(path))
        checkpoint: Checkpoint | None = None
        builds = environment.builds(communicator)
        with communicator.together():
            if communicator.rank == 0:
                checkpoint = find_checkpoint(path, experiment, builds)
        found = (True, checkpoint.experiment) if checkpoint else (False, experiment)
        goes_on, completed = communicator.share(found)
        if goes_on:
            # First of all: to other data, the settings of the checkpoint need not even fit.
            check_data(source, communicator)
            with communicator.together():
                if checkpoint is not None:
                    check_same_data(checkpoint, source, input_files(completed), path)
        plan = plan or _resolved(completed, source, communicator)
        with communicator.together():
            if checkpoint is not None:
                check_state(checkpoint, plan, path)
        check_inputs(plan, communicator)
        simulation, keeper = Simulation(plan, communicator, checkpoint), FileKeeper(self, path, audience)
        if not goes_on:
            # Before the first message leaves, once it is known that the run can begin.
            keeper.begin(simulation.state())
        result = simulation.run(audience, keeper)
        with communicator.together():
            if communicator.rank == 0:
                self._write(result, path)
        return audience.finish(replace(result, path=path), communicator)

    def _write(self, result: Result, path: Path) -> None:
        """Write the result and remove the checkpoint; the same result from another job is as good."""
        from mu2mpi.results.checkpoint import remove_checkpoint
        from mu2mpi.results.reader import read_result
        from mu2mpi.results.writer import write_result

        checkpoint = checkpoint_path(path)
        try:
            write_result(result, path, self.overwrite and not self.has_changed(path))
        except InputError:
            if not self.has_changed(path):
                raise
            # Two jobs that went on from one checkpoint have one key, and came to the same bits.
            if not (holds(path, result.experiment) and np.array_equal(read_result(path).x, result.x)):
                way_out = "it is lost, and to repeat the command would send everything once more"
                if checkpoint.exists():
                    way_out = f"move {path} away and repeat the command to go on from it: {checkpoint} stays"
                raise InputError(
                    f"another job has written {path} in the meantime, and what this one found is in no file; "
                    f"what both have sent is spent, and their rho add up as squares; {way_out}"
                ) from None
        remove_checkpoint(checkpoint)

    def has_changed(self, path: Path) -> bool:
        """Return whether another job has written an output since this one began."""
        return identity(path) != self.before.get(path)


def holds(path: Path, experiment: Experiment) -> bool:
    """Return whether a file is the finished result of this experiment."""
    from mu2mpi.results.reader import read_experiment

    try:
        return read_experiment(path) == experiment
    except InputError:
        return False


class FileKeeper(Watch):
    """Keeps checkpoints in a file beside the output, which rank 0 alone writes: others have no state."""

    def __init__(self, job: Job, output: Path, audience: Audience) -> None:
        super().__init__(job.communicator, job.is_asked, job.checkpoint_every)
        self._job, self._output, self._audience = job, output, audience

    def keep(self, verdict: Verdict, state: Checkpoint | None) -> None:
        """Write the state, and stop every rank if it was to stop; a full disk stops no other run."""
        try:
            self.write(state)
        except OSError as error:
            if verdict is Verdict.STOP:
                raise
            if state is not None:
                warn(f"{error}; the run goes on")
        else:
            if state is not None:
                self._audience.tell("on_checkpoint", state.rounds_done)
        self._audience.check(self._communicator)
        if verdict is Verdict.STOP:
            raise Interrupted(self._communicator.share(state.rounds_done if state is not None else 0))

    def begin(self, state: Checkpoint | None) -> None:
        """Write the first state of a run; every rank raises InputError if another job was first.

        It keeps the key of a run without a seed, which if started again would send the same secrets under
        other noise, and it tells other jobs that the output is taken.
        """
        self.write(state, replace=False)
        with self._communicator.together():
            # Whoever finishes writes the result before the checkpoint goes, so that one is seen.
            if state is not None and self._job.has_changed(self._output):
                checkpoint_path(self._output).unlink()
                raise InputError(
                    f"another job has written {self._output} since this one began; name another output, or "
                    "repeat the command with --overwrite to replace it; this one has sent nothing"
                )

    def write(self, state: Checkpoint | None, replace: bool = True) -> None:
        """Write the state; every rank raises InputError if there is one that may not be replaced."""
        path = checkpoint_path(self._output)
        with self._communicator.together():
            if state is None:
                return
            from mu2mpi.results.checkpoint import write_checkpoint

            try:
                write_checkpoint(state, path, replace)
            except FileExistsError:
                raise InputError(
                    f"another job has begun the run of {self._output} just now, and its checkpoint {path} is "
                    "there: wait for that job, or name another output; this one has sent nothing"
                ) from None
            except OSError as error:
                older = "the one before it is still there" if path.exists() else "there is none"
                raise OSError(f"cannot write the checkpoint {path}: {error.strerror}; {older}") from None
