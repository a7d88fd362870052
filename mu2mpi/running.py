"""Runs with their files: resume from a checkpoint, keep new ones, write the result, clean up."""

import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from mu2mpi import environment
from mu2mpi.data.source import Source
from mu2mpi.errors import InputError, Interrupted
from mu2mpi.experiment import Experiment
from mu2mpi.interruption import Verdict, Watch
from mu2mpi.parallel import Communicator, world
from mu2mpi.preparation import shared_source
from mu2mpi.preset import with_preset
from mu2mpi.progress import Progress
from mu2mpi.results.schema import Checkpoint, Result
from mu2mpi.signals import CHECKPOINT_SECONDS, Requests, StopRequests, stop_requests
from mu2mpi.simulation import Keeper, Simulation

__all__ = ["Job", "holds", "run"]


def run(
    experiment: Experiment,
    *,
    output: Path | str | None = None,
    data_dir: Path | str | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    checkpoint_every: float = CHECKPOINT_SECONDS,
) -> Result:
    """Run an experiment on all ranks of the job.

    With an output, the run goes on from the checkpoint beside it if there is one, and stops with a new
    one on SIGUSR1, SIGUSR2 or SIGTERM.

    Parameters
    ----------
    experiment : Experiment
        What to run. Every rank must give the same.
    output : path, optional
        Where to write the result; nothing is written without it.
    data_dir : path, optional
        Folder that holds a folder for each data set; by default ``MU2MPI_DATA_DIR`` or the user's cache.
    overwrite : bool, optional
        Replace an output that exists.
    progress : Progress, optional
        Told on rank 0 how the run goes.
    checkpoint_every : float, optional
        Seconds between two checkpoints.

    Returns
    -------
    Result
        The same on every rank.

    Raises
    ------
    InputError
        On every rank, if the experiment, the data, the output or its checkpoint cannot be used; nothing
        is written then.
    OSError
        On every rank, if the result cannot be written.
    Interrupted
        On every rank, if a signal stopped the run. It is a `SystemExit` with code 75.

    Examples
    --------
    >>> from mu2mpi import Experiment, run
    >>> result = run(Experiment(data="digits", machines=4, server="trusted", rho=4.0, seed=1))
    >>> result.x.shape
    (10, 65)
    """
    communicator = world()
    folder = None if data_dir is None else Path(data_dir)
    path = None if output is None else Path(output)
    # Without a file to go on from, signals do what they do to any program.
    with stop_requests() if path is not None else nullcontext(StopRequests()) as requests:
        with communicator.together():
            if path is not None and communicator.rank == 0:
                from mu2mpi.results.writer import check_output

                check_output(path, overwrite)
        source = shared_source(experiment, folder, communicator)
        progress = progress or Progress()
        if path is None:
            return Simulation(experiment, source, communicator).run(progress)
        job = Job(communicator, requests, overwrite, checkpoint_every)
        return job.run_to_file(experiment, source, path, progress)


@dataclass(frozen=True)
class Job:
    """How this job treats files and signals, whatever it runs.

    Attributes
    ----------
    communicator : Communicator
        The ranks; rank 0 reads and writes, so that it alone imports HDF5.
    requests : Requests
        What has been asked of this rank.
    overwrite : bool
        Whether results that exist are replaced.
    checkpoint_every : float
        Seconds between two checkpoints of a run.
    """

    communicator: Communicator
    requests: Requests
    overwrite: bool
    checkpoint_every: float

    def run_to_file(self, experiment: Experiment, source: Source, path: Path, progress: Progress) -> Result:
        """Run an experiment from its checkpoint, if there is one, to its result; raises like `run`."""
        communicator = self.communicator
        checkpoint: Checkpoint | None = None
        with communicator.together():
            if communicator.rank == 0:
                checkpoint = _find_checkpoint(path, experiment)
        completed = communicator.share(checkpoint.experiment if checkpoint else experiment)
        simulation = Simulation(completed, source, communicator, checkpoint)
        keeper = FileKeeper(self, path)
        if simulation.needs_its_key_kept and simulation.rounds_done == 0:
            keeper.keep(Verdict.SAVE, simulation.state())
        result = simulation.run(progress, keeper)
        with communicator.together():
            if communicator.rank == 0:
                self._write(result, path)
        return result

    def _write(self, result: Result, path: Path) -> None:
        """Write the result and remove the checkpoint; the same result from another job is as good."""
        from mu2mpi.results.checkpoint import checkpoint_path
        from mu2mpi.results.writer import write_result

        try:
            write_result(result, path, self.overwrite)
        except InputError:
            if not holds(path, result.experiment):
                raise
        checkpoint_path(path).unlink(missing_ok=True)


def holds(path: Path, experiment: Experiment) -> bool:
    """Return whether a file is the finished result of this experiment."""
    from mu2mpi.results.reader import read_experiment

    try:
        return read_experiment(path) == experiment
    except InputError:
        return False


def _find_checkpoint(path: Path, experiment: Experiment) -> Checkpoint | None:
    """Return the checkpoint beside an output, if there is one and it belongs to the experiment."""
    from mu2mpi.results.checkpoint import checkpoint_path, read_checkpoint

    place = checkpoint_path(path)
    if not place.exists():
        return None
    checkpoint = read_checkpoint(place)
    # What the experiment leaves open was settled when the run began, perhaps on other ranks.
    settled = {
        name: getattr(checkpoint.experiment, name)
        for name in ("machines", "rounds", "batch")
        if getattr(experiment, name) is None
    }
    difference = with_preset(experiment.model_copy(update=settled)).difference(checkpoint.experiment)
    if difference is not None:
        raise InputError(
            f"the checkpoint {place} is of another experiment: {difference}; repeat the command that wrote "
            "it, name another output, or remove the checkpoint"
        )
    _check_processor(checkpoint, place)
    return checkpoint


def _check_processor(checkpoint: Checkpoint, place: Path) -> None:
    """Refuse, or with a seed only warn, to go on where rounds would be repeated with other bits."""
    here = environment.processor()
    if checkpoint.processor == here:
        return
    kinds = f"{checkpoint.processor}, not {here}"
    where = f"the checkpoint {place} was written on another kind of processor ({kinds})"
    if checkpoint.experiment.seed is None:
        raise InputError(
            f"{where}; the rounds since would be sent again with the same noise but slightly other content, "
            "which costs privacy: go on where it was written"
        )
    print(f"mu2mpi: warning: {where}; the result will differ in its last bits", file=sys.stderr, flush=True)


class FileKeeper(Keeper):
    """Keeps checkpoints in a file beside the output, which rank 0 writes."""

    def __init__(self, job: Job, output: Path) -> None:
        self._communicator = job.communicator
        self._output = output
        self._watch = Watch(job.communicator, job.requests, job.checkpoint_every)

    def look(self, t: int) -> Verdict:
        """Say, the same on every rank, what to do before round t."""
        return self._watch.look(t)

    def keep(self, verdict: Verdict, state: Checkpoint | None) -> None:
        """Write the state on rank 0; a full disk stops only a run that was to stop.

        Raises
        ------
        Interrupted
            On every rank, if the run was to stop.
        OSError
            On every rank, if it was to stop and the checkpoint cannot be written.
        """
        failure = self._write(state) if state is not None else None
        if verdict is Verdict.STOP:
            with self._communicator.together():
                if failure is not None:
                    raise OSError(failure)
            raise Interrupted(self._communicator.share(state.rounds_done if state is not None else 0))
        if failure is not None:
            print(f"mu2mpi: warning: {failure}; the run goes on", file=sys.stderr, flush=True)

    def _write(self, state: Checkpoint) -> str | None:
        from mu2mpi.results.checkpoint import checkpoint_path, write_checkpoint

        path = checkpoint_path(self._output)
        try:
            write_checkpoint(state, path)
        except OSError as error:
            older = "the one before it is still there" if path.exists() else "there is none"
            return f"cannot write the checkpoint {path}: {error.strerror}; {older}"
        return None
