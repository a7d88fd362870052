"""Run the experiments of a sweep, side by side where that is faster, skipping what is finished."""

import itertools
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mu2mpi.config.experiment import Experiment
from mu2mpi.config.identity import difference
from mu2mpi.config.sweep import Sweep
from mu2mpi.data.source import Source
from mu2mpi.errors import InputError, Interrupted
from mu2mpi.execution.agreement import check_agreement, check_data, check_settings, shared_source
from mu2mpi.execution.cost import run_cost
from mu2mpi.execution.job import Job, holds
from mu2mpi.execution.plan import Plan, resolve
from mu2mpi.execution.progress import LogProgress, for_standard_error
from mu2mpi.execution.side_by_side import Wave, waves
from mu2mpi.execution.signals import CHECKPOINT_SECONDS, stop_requests
from mu2mpi.files import identity
from mu2mpi.parallel import Communicator, world
from mu2mpi.results.observer import Observer
from mu2mpi.results.reader import read_experiment, read_summary
from mu2mpi.results.writer import check_output
from mu2mpi.toml import read_toml

if TYPE_CHECKING:
    from mu2mpi.analysis.runs import Runs

LOG_SECONDS = 30.0
"""A log hears of a run at most this often: a sweep may have hundreds of short ones."""


def sweep(
    settings: Mapping[str, Any] | Path | str,
    *,
    output: Path | str,
    data_dir: Path | str | None = None,
    overwrite: bool = False,
    observers: Sequence[Observer] = (),
    progress: bool = True,
    checkpoint_every: float = CHECKPOINT_SECONDS,
) -> "Runs":
    """Run every combination of the lists among some settings, but for what is finished, and load the results.

    Parameters
    ----------
    settings : dict or path
        Settings by name, of which any may be a list; or the TOML file that holds them.
    output : path
        The folder of the results. The same call goes on from what is there.
    data_dir, checkpoint_every
        As for `run`.
    overwrite : bool, optional
        Run again what is finished.
    observers : sequence of Observer, optional
        Hear of each run, one after the other: on rank 0 of those that take it, so that where runs go side by
        side, each lane has its own copies.
    progress : bool, optional
        Say on standard error how it goes, on a terminal or in a notebook with a bar for each run.

    Returns
    -------
    Runs
        In the order of the sweep: the last list varies fastest. The same on every rank.

    Raises
    ------
    InputError, OSError, Interrupted
        As `run` does; before anything is run, if an experiment does not fit its data, or a file in the folder
        holds another experiment.

    Examples
    --------
    >>> settings = {"machines": [1, 10], "epsilon": [1, 2], "seed": [1, 2]}
    >>> runs = mu2mpi.sweep(settings, output="runs/", progress=False)
    >>> runs
    <8 runs>
    >>> table = runs.table(rows=["epsilon"], columns=["machines"], values=["test_loss"])
    """
    from mu2mpi.analysis.runs import Runs

    communicator = world()
    with communicator.together():
        if isinstance(settings, Path | str):
            found = Sweep(read_toml(Path(settings)), str(settings))
        else:
            found = Sweep(settings)
    paths = run_sweep(
        found,
        found.choose(None),
        Path(output),
        data_dir=None if data_dir is None else Path(data_dir),
        overwrite=overwrite,
        checkpoint_every=checkpoint_every,
        observers=observers,
        progress=progress,
    )
    with communicator.together():
        summaries = [read_summary(path) for path in paths] if communicator.rank == 0 else []
    return Runs(communicator.share(summaries))


def run_sweep(
    sweep: Sweep,
    chosen: list[tuple[int, Experiment]],
    folder: Path,
    *,
    data_dir: Path | None = None,
    overwrite: bool = False,
    checkpoint_every: float = CHECKPOINT_SECONDS,
    observers: Sequence[Observer] = (),
    progress: bool = True,
) -> list[Path]:
    """Run experiments of a sweep on all ranks, side by side (`waves`), and write a file for each to a folder.

    Returns the files of all that it holds, also of what was finished, but for methods that were left out;
    raises like `sweep`. Runs that a signal interrupts leave checkpoints.
    """
    with stop_requests() as requests:
        communicator = world()
        teller = Teller(observers, progress)
        check_settings([experiment for _, experiment in chosen], communicator)
        plans = resolve_sweep(sweep, [e for _, e in chosen], data_dir, communicator)
        for line in sweep.left_out:
            teller.say(communicator, line)
        with communicator.together():
            runs = [Run(plan, folder / sweep.file_name(e)) for e, plan in plans.items()]
            paths = [run.path for run in runs]
            # First what is there, so that what another job writes from here on is seen as another's.
            before = {path: identity(path) for path in paths} if communicator.rank == 0 else {}
            todo = unfinished(runs, overwrite) if communicator.rank == 0 else []
        runs = [runs[number] for number in communicator.share(todo)]
        job = Job(
            communicator, lambda: requests.pending, overwrite, checkpoint_every, communicator.share(before)
        )
        for source in dict.fromkeys(run.plan.source for run in runs):
            check_data(source, communicator)
        done = f"{len(plans) - len(runs)} of {len(plans)} runs are finished; {len(runs)} to go"
        teller.say(communicator, done)
        schedules = [run.plan.schedule for run in runs]
        machines, costs = [s.machines for s in schedules], [run_cost(s) for s in schedules]
        place = itertools.count(1)
        for wave in waves(machines, costs, communicator.size):
            labels = {number: f"[{next(place)}/{len(runs)}]" for number in wave.runs()}
            _run_wave(job, wave, runs, labels, teller)
        teller.say(communicator, f"all {len(plans)} runs are in {folder}; next: mu2mpi table {folder}")
        return paths


@dataclass(frozen=True)
class Teller:
    """Who hears of the runs of a sweep, and whether standard error does."""

    observers: Sequence[Observer]
    progress: bool

    def say(self, communicator: Communicator, message: str) -> None:
        """Print a line on rank 0."""
        if self.progress and communicator.rank == 0:
            print(message, file=sys.stderr, flush=True)

    def observers_of(self, label: str, side_by_side: bool) -> list[Observer]:
        """Return who hears of a run; of several bars on one terminal, each would draw over the others."""
        if not self.progress:
            return [*self.observers]
        if side_by_side:
            return [*self.observers, LogProgress(sys.stderr, label, LOG_SECONDS)]
        return [*self.observers, for_standard_error(label, LOG_SECONDS)]


def resolve_sweep(
    sweep: Sweep,
    experiments: Sequence[Experiment],
    data_dir: Path | None,
    communicator: Communicator,
    ranks: int | None = None,
) -> dict[Experiment, Plan]:
    """Return plans of experiments, but for methods under comparison that do not suit their data."""
    sources, found = open_all(experiments, data_dir, communicator), {}
    with communicator.together():
        for experiment in experiments:
            try:
                found[experiment] = resolve(
                    experiment, sources[experiment.data_key], ranks or communicator.size
                )
            except InputError as error:
                sweep.leave_out(experiment.settings(), error)
        sweep.check_left(len(found))
    check_agreement({"the list of methods that are left out": sweep.left_out}, communicator)
    return found


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


def _run_wave(job: Job, wave: Wave, runs: list[Run], labels: dict[int, str], teller: Teller) -> None:
    """Take the runs of a wave, each lane on its own ranks; every rank ends like those that fail or stop.

    Launchers pass a signal on to all ranks, so that all lanes stop.
    """
    everyone, side_by_side = job.communicator, len(wave.lanes) > 1

    def take_lane(job: Job, lane: int) -> None:
        for number in wave.lanes[lane]:
            _take(job, runs[number], labels[number], teller, side_by_side)

    if not side_by_side:
        take_lane(job, 0)
        return
    stopped_after, lane = None, wave.lane_of(everyone.rank)
    with everyone.part(lane) as group:
        with everyone.together():
            if group is not None and lane is not None:
                try:
                    take_lane(replace(job, communicator=group), lane)
                except Interrupted as stop:
                    stopped_after = stop.rounds_done
        stops = [rounds for rounds in everyone.allgather(stopped_after) if rounds is not None]
    if stops:
        raise Interrupted(max(stops))


def _take(job: Job, run: Run, label: str, teller: Teller, side_by_side: bool) -> None:
    communicator, plan = job.communicator, run.plan
    # Another job may have been at work in the same folder meanwhile.
    is_done = communicator.rank == 0 and job.has_changed(run.path) and holds(run.path, plan.experiment)
    if communicator.share(is_done):
        teller.say(communicator, f"{label} {run.path}: finished by another job")
        return
    observers = teller.observers_of(label, side_by_side)
    job.run_to_file(plan.experiment, plan.source, run.path, observers, plan)


def unfinished(runs: list[Run], overwrite: bool) -> list[int]:
    """Return the numbers of what has no result yet, having made sure that it can be written.

    A result that was measured at other rounds is finished: its model is the same.
    """
    todo, measured_otherwise = [], []
    for number, run in enumerate(runs):
        if overwrite or not run.path.exists():
            todo.append(number)
            continue
        experiment, there = run.plan.experiment, read_experiment(run.path)
        different = difference(experiment, there, but=("evaluations",))
        if different is not None:
            raise InputError(
                f"{run.path} holds another experiment: {different}; "
                "use another --output, or --overwrite to replace it"
            )
        if experiment.evaluations != there.evaluations:
            measured_otherwise.append(run.path)
    if todo:
        check_output(runs[todo[0]].path, overwrite)
    if measured_otherwise:
        print(
            f"mu2mpi: warning: {len(measured_otherwise)} of the finished runs have another number of "
            f"evaluations, such as {measured_otherwise[0]}; that changes no model, so they stay as they are. "
            "--overwrite runs them again, which without a seed spends as much privacy once more",
            file=sys.stderr,
            flush=True,
        )
    return todo
