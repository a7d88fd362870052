"""Run the experiments of a sweep, side by side where that is faster, skipping what is finished."""

import itertools
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from mu2mpi.config.experiment import Experiment, difference
from mu2mpi.config.sweep import Sweep
from mu2mpi.core.errors import InputError, Interrupted
from mu2mpi.core.files import identity
from mu2mpi.core.parallel import Communicator, world
from mu2mpi.core.text import say, warn
from mu2mpi.data.source import Source
from mu2mpi.execution.evaluation_schedule import run_cost
from mu2mpi.execution.job import Job, holds
from mu2mpi.execution.plan import Plan, check_agreement, check_data, check_settings, resolve, shared_source
from mu2mpi.execution.progress import LogProgress, for_standard_error
from mu2mpi.execution.signals import CHECKPOINT_SECONDS, stop_requests
from mu2mpi.results.callbacks import Observer
from mu2mpi.results.reader import read_experiment
from mu2mpi.results.writer import check_output

LOG_SECONDS = 30.0  # A log hears of a run at most this often: a sweep may have hundreds of short ones


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
    """Run experiments of a sweep on all ranks, side by side (`waves`), and return their result files."""

    def report(group: Communicator, message: str) -> None:
        if progress and group.rank == 0:
            say(message)

    def take(job: Job, path: Path, plan: Plan, label: str, side_by_side: bool) -> None:
        # Another job may have been at work in the same folder meanwhile.
        group, heard = job.communicator, [*observers]
        if group.share(group.rank == 0 and job.has_changed(path) and holds(path, plan.experiment)):
            report(group, f"{label} {path}: finished by another job")
            return
        if progress:
            # Of several bars on one terminal, each would draw over the others.
            log = LogProgress(sys.stderr, label, LOG_SECONDS) if side_by_side else None
            heard.append(log or for_standard_error(label, LOG_SECONDS))
        job.run_to_file(plan.experiment, plan.source, path, heard, plan)

    with stop_requests() as requests:
        communicator = world()
        check_settings([experiment for _, experiment in chosen], communicator)
        plans = resolve_sweep(sweep, [e for _, e in chosen], data_dir, communicator)
        for line in sweep.left_out:
            report(communicator, line)
        # As a run takes the output of rank 0
        folder = communicator.share(folder)
        with communicator.together():
            runs = {folder / sweep.file_name(e): plan for e, plan in plans.items()}
            # First what is there, so that what another job writes from here on is seen as another's.
            before = {path: identity(path) for path in runs} if communicator.rank == 0 else {}
            todo = unfinished(runs, overwrite) if communicator.rank == 0 else []
        todo, before = communicator.share((todo, before))
        job = Job(communicator, lambda: requests.pending, overwrite, checkpoint_every, before)
        for source in dict.fromkeys(runs[path].source for path in todo):
            check_data(source, communicator)
        report(communicator, f"{len(runs) - len(todo)} of {len(runs)} runs are finished; {len(todo)} to go")
        constants, place = [runs[path].constants for path in todo], itertools.count(1)
        machines, costs = [each.task.machines for each in constants], [*map(run_cost, constants)]
        for wave in waves(machines, costs, communicator.size):
            labels = {number: f"[{next(place)}/{len(todo)}]" for number in wave.runs()}
            with _lane(job, wave) as (own, number):
                if own is not None:
                    for k in wave.lanes[number]:
                        take(own, todo[k], runs[todo[k]], labels[k], len(wave.lanes) > 1)
        report(communicator, f"all {len(runs)} runs are in {folder}; next: mu2mpi table {folder}")
        return list(runs)


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
                source = sources[experiment.data_key]
                found[experiment] = resolve(experiment, source, ranks or communicator.size)
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


class Wave(NamedTuple):
    """Runs that share the ranks at the same time: each group of `width` ranks has a lane of runs."""

    width: int
    lanes: tuple[tuple[int, ...], ...]

    def runs(self) -> list[int]:
        """Return the runs of all lanes, in about the order in which they begin."""
        return [run for row in itertools.zip_longest(*self.lanes) for run in row if run is not None]

    def lane_of(self, rank: int) -> int | None:
        """Return the lane that a rank works in, or None if there is none left for it."""
        return lane if (lane := rank // self.width) < len(self.lanes) else None


def waves(machines: Sequence[int], costs: Sequence[float], ranks: int) -> list[Wave]:
    """Arrange runs, by their times on one core, so that every rank is busy to the end with few messages.

    Each run gets one rank. Those that are more than a rank's fair share of all the work get more, and so do
    the shortest if too few are left; no run gets more ranks than machines. Runs of one width make a wave.
    """
    order = sorted(range(len(machines)), key=lambda run: (-costs[run], run))
    fair = sum(costs) / ranks
    large = sum(cost > fair for cost in costs)
    left_over = (len(order) - large) % ranks
    widths: dict[int, list[int]] = {}
    for place, run in enumerate(order):
        width = 1
        if place < large:
            # A single run is as many fair shares as there are ranks, or by rounding errors more.
            width = min(ranks, math.ceil(costs[run] / fair))
        elif place >= len(order) - left_over:
            width = ranks // left_over
        widths.setdefault(min(width, machines[run]), []).append(run)
    return [_fill(width, runs, costs, ranks) for width, runs in widths.items()]


def _fill(width: int, runs: list[int], costs: Sequence[float], ranks: int) -> Wave:
    """Deal out runs to lanes: the longest that is left to the lane that is free first."""
    count = min(ranks // width, len(runs))
    if count == 1:
        # Ranks without machines still take their part in evaluations.
        return Wave(ranks, (tuple(runs),))
    lanes: list[list[int]] = [[] for _ in range(count)]
    busy = [0.0] * count
    for run in runs:
        lane = busy.index(min(busy))
        lanes[lane].append(run)
        busy[lane] += costs[run]
    return Wave(width, tuple(map(tuple, lanes)))


@contextmanager
def _lane(job: Job, wave: Wave) -> Iterator[tuple[Job | None, int]]:
    """Give each rank the job of its lane, if any; if a lane fails or stops, so do all ranks."""
    everyone, stopped_after = job.communicator, None
    if len(wave.lanes) == 1:
        yield job, 0
        return
    lane = wave.lane_of(everyone.rank)
    with everyone.part(lane) as group:
        with everyone.together():
            try:
                yield (None if group is None else replace(job, communicator=group)), lane or 0
            except Interrupted as stop:
                stopped_after = stop.rounds_done
        stops = [rounds for rounds in everyone.allgather(stopped_after) if rounds is not None]
    if stops:
        raise Interrupted(max(stops))


def unfinished(runs: Mapping[Path, Plan], overwrite: bool) -> list[Path]:
    """Return the results that are still to be written; other evaluations change no model."""
    todo, measured_otherwise = [], []
    for path, plan in runs.items():
        if overwrite or not path.exists():
            todo.append(path)
            continue
        experiment, there = plan.experiment, read_experiment(path)
        different = difference(experiment, there, but=("evaluations",))
        if different is not None:
            raise InputError(
                f"{path} holds another experiment: {different}; "
                "use another --output, or --overwrite to replace it"
            )
        if experiment.evaluations != there.evaluations:
            measured_otherwise.append(path)
    if todo:
        check_output(todo[0], overwrite)
    if measured_otherwise:
        warn(
            f"{len(measured_otherwise)} of the finished runs have another number of evaluations, such as "
            f"{measured_otherwise[0]}. They have the same model, so they stay; --overwrite runs them again, "
            "which without a seed spends as much privacy once more"
        )
    return todo
