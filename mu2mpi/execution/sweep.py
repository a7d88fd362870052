"""Run the experiments of a sweep, side by side where that is faster, skipping what is finished."""

import itertools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mu2mpi.config.experiment import Experiment
from mu2mpi.config.identity import difference
from mu2mpi.config.sweep import Sweep
from mu2mpi.data.source import Source
from mu2mpi.errors import InputError
from mu2mpi.execution.cost import run_cost
from mu2mpi.execution.crew import on_a_part, part_of
from mu2mpi.execution.job import Job, holds
from mu2mpi.execution.plan import Plan, resolve
from mu2mpi.execution.progress import LogProgress, Progress, for_standard_error
from mu2mpi.execution.side_by_side import Wave, waves
from mu2mpi.execution.signals import stop_requests
from mu2mpi.execution.sources import check_data, shared_source
from mu2mpi.files import identity
from mu2mpi.parallel import Communicator, world
from mu2mpi.results.reader import read_experiment
from mu2mpi.results.writer import check_output

LOG_SECONDS = 30.0
"""A log hears of a run at most this often: a sweep may have hundreds of short ones."""


def run_sweep(
    sweep: Sweep,
    chosen: list[tuple[int, Experiment]],
    folder: Path,
    data_dir: Path | None,
    overwrite: bool,
    checkpoint_every: float,
    all_ranks: bool = False,
) -> None:
    """Run experiments of a sweep on all ranks, side by side (`waves`), and write a file for each to a folder.

    Every rank raises InputError before anything is run if an experiment does not fit its data, or a file in
    the folder holds another experiment than the sweep would write there; and Interrupted if a signal stopped
    the sweep: the runs that it was at have checkpoints.
    """
    with stop_requests() as requests:
        communicator = world()
        plans = resolve_all([e for _, e in chosen], data_dir, communicator, communicator.size)
        with communicator.together():
            names = [sweep.file_name(e) for _, e in chosen]
            runs = [Run(plan, folder / name) for plan, name in zip(plans, names, strict=True)]
            todo = unfinished(runs, overwrite) if communicator.rank == 0 else []
        runs = [runs[number] for number in communicator.share(todo)]
        before = {run.path: identity(run.path) for run in runs} if communicator.rank == 0 else {}
        before = communicator.share(before)
        job = Job(communicator, lambda: requests.pending, overwrite, checkpoint_every, before, all_ranks)
        for source in dict.fromkeys(run.plan.source for run in runs):
            check_data(source, communicator)
        _say(communicator, f"{len(chosen) - len(runs)} of {len(chosen)} runs are finished; {len(runs)} to go")
        schedules = [run.plan.schedule for run in runs]
        machines, costs = [s.machines for s in schedules], [run_cost(s) for s in schedules]
        place = itertools.count(1)
        for wave in waves(machines, costs, communicator.size):
            _run_wave(job, wave, runs, {number: f"[{next(place)}/{len(runs)}]" for number in wave.runs()})
        _say(communicator, f"all {len(chosen)} runs are in {folder}; next: mu2mpi table {folder}")


def resolve_all(
    experiments: Sequence[Experiment], data_dir: Path | None, communicator: Communicator, ranks: int
) -> list[Plan]:
    """Settle what experiments leave open, and open each data set once; raises InputError like `resolve`."""
    sources = open_all(experiments, data_dir, communicator)
    with communicator.together():
        return [resolve(e, sources[e.data_key], ranks) for e in experiments]


def open_all(
    experiments: Sequence[Experiment], data_dir: Path | None, communicator: Communicator
) -> dict[tuple[object, ...], Source]:
    """Open each data set of some experiments once, by the key that they have for it."""
    examples = {experiment.data_key: experiment for experiment in experiments}
    return {key: shared_source(e, data_dir, communicator) for key, e in examples.items()}


@dataclass(frozen=True)
class Run:
    """One run of the sweep: what, on which data, and where its result goes."""

    plan: Plan
    path: Path


def _run_wave(job: Job, wave: Wave, runs: list[Run], labels: dict[int, str]) -> None:
    """Take the runs of a wave, each lane on its own ranks; if one is interrupted, so is every rank."""
    everyone = job.communicator
    if len(wave.lanes) == 1:
        for number in wave.lanes[0]:
            _take(job, runs[number], labels[number], for_standard_error(LOG_SECONDS))
        return
    lane = wave.lane_of(everyone.rank)

    def take_lane(group: Communicator) -> None:
        for number in wave.lanes[lane or 0]:
            _take(job.on(group), runs[number], labels[number], LogProgress(sys.stderr, LOG_SECONDS))

    with part_of(everyone, lane) as group:
        on_a_part(everyone, group, job.is_asked, take_lane)


def _take(job: Job, run: Run, label: str, progress: Progress) -> None:
    communicator, plan = job.communicator, run.plan
    _say(communicator, f"{label} {run.path}")
    # Another job may have been at work in the same folder meanwhile.
    is_done = communicator.rank == 0 and job.has_changed(run.path) and holds(run.path, plan.experiment)
    if communicator.share(is_done):
        _say(communicator, f"{label} finished by another job")
        return
    result = job.run_to_file(plan.experiment, plan.source, run.path, progress, plan)
    _say(communicator, f"{label} loss {result.history.test_loss[-1]:.4f}, {result.final_score}")


def unfinished(runs: list[Run], overwrite: bool) -> list[int]:
    """Return the numbers of what has no result yet, having made sure that it can be written."""
    todo = []
    for number, run in enumerate(runs):
        if overwrite or not run.path.exists():
            todo.append(number)
            continue
        different = difference(run.plan.experiment, read_experiment(run.path))
        if different is not None:
            raise InputError(
                f"{run.path} holds another experiment: {different}; "
                "use another --output, or --overwrite to replace it"
            )
    if todo:
        check_output(runs[todo[0]].path, overwrite)
    return todo


def _say(communicator: Communicator, message: str) -> None:
    if communicator.rank == 0:
        print(message, file=sys.stderr, flush=True)
