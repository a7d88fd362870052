"""Run the experiments of a sweep one after the other, skipping what is finished."""

import sys
from pathlib import Path

from mu2mpi.data.source import Source
from mu2mpi.errors import InputError
from mu2mpi.experiment import Experiment, Sweep
from mu2mpi.parallel import Communicator, world
from mu2mpi.preparation import complete, plan, shared_source
from mu2mpi.progress import for_standard_error
from mu2mpi.results.reader import read_experiment
from mu2mpi.results.writer import check_output
from mu2mpi.running import Job, holds
from mu2mpi.signals import stop_requests

__all__ = ["run_sweep"]

LOG_SECONDS = 30.0
"""A log hears of a run at most this often: a sweep may have hundreds of short ones."""

Chosen = list[tuple[int, Experiment]]


def run_sweep(
    sweep: Sweep,
    chosen: Chosen,
    folder: Path,
    data_dir: Path | None,
    overwrite: bool,
    checkpoint_every: float,
) -> None:
    """Run experiments of a sweep on all ranks and write one result file for each.

    Parameters
    ----------
    sweep : Sweep
        Gives the files their names.
    chosen : list of (int, Experiment)
        What to run, with its index in the sweep.
    folder : Path
        Where the results go; made if need be.
    data_dir : Path or None
        Folder of data sets.
    overwrite : bool
        Whether to run again what is finished.
    checkpoint_every : float
        Seconds between two checkpoints of a run.

    Raises
    ------
    InputError
        On every rank, before anything is run: if an experiment does not fit its data, or a file in the
        folder holds another experiment than the sweep would write there.
    Interrupted
        On every rank, if a signal stopped the sweep; the run that it was at has a checkpoint.
    """
    communicator = world()
    with stop_requests() as requests:
        _run_all(Job(communicator, requests, overwrite, checkpoint_every), sweep, chosen, folder, data_dir)


def _run_all(job: Job, sweep: Sweep, chosen: Chosen, folder: Path, data_dir: Path | None) -> None:
    communicator = job.communicator
    sources = {
        data_key(experiment): shared_source(experiment, data_dir, communicator)
        for experiment in {data_key(e): e for _, e in chosen}.values()
    }
    with communicator.together():
        for _, experiment in chosen:
            plan(experiment, sources[data_key(experiment)], communicator.size)
        todo = _unfinished(job, sweep, chosen, folder, sources)
    todo = communicator.share(todo)
    _say(communicator, f"{len(chosen) - len(todo)} of {len(chosen)} runs are finished; {len(todo)} to go")
    for count, (_index, experiment) in enumerate(todo, 1):
        path, source = folder / sweep.file_name(experiment), sources[data_key(experiment)]
        _say(communicator, f"[{count}/{len(todo)}] {path}")
        # Another job may have been at work in the same folder meanwhile.
        completed = complete(experiment, source, communicator.size)
        if not job.overwrite and communicator.share(communicator.rank == 0 and holds(path, completed)):
            _say(communicator, "  finished by another job")
            continue
        progress = for_standard_error(LOG_SECONDS)
        history = job.run_to_file(experiment, source, path, progress).history
        _say(communicator, f"  loss {history.test_loss[-1]:.4f}, accuracy {history.test_accuracy[-1]:.1%}")
    _say(communicator, f"all {len(chosen)} runs are in {folder}; next: mu2mpi table {folder}")


def data_key(experiment: Experiment) -> tuple[object, ...]:
    """Return what tells the experiment's data set from others."""
    return tuple(
        getattr(experiment, name) for name in ("data", "samples", "features", "classes", "data_seed")
    )


def _unfinished(
    job: Job,
    sweep: Sweep,
    chosen: Chosen,
    folder: Path,
    sources: dict[tuple[object, ...], Source],
) -> Chosen:
    """Return what has no result yet, judged by rank 0, which also makes sure that it can write."""
    if job.communicator.rank != 0:
        return []
    todo = []
    for index, experiment in chosen:
        path = folder / sweep.file_name(experiment)
        if path.exists() and not job.overwrite:
            _check_same(path, complete(experiment, sources[data_key(experiment)], job.communicator.size))
        else:
            todo.append((index, experiment))
    if todo:
        check_output(folder / sweep.file_name(todo[0][1]), job.overwrite)
    return todo


def _check_same(path: Path, experiment: Experiment) -> None:
    difference = experiment.difference(read_experiment(path))
    if difference is not None:
        raise InputError(
            f"{path} holds another experiment: {difference}; "
            "use another --output, or --overwrite to replace it"
        )


def _say(communicator: Communicator, message: str) -> None:
    if communicator.rank == 0:
        print(message, file=sys.stderr, flush=True)
