"""Run the unfinished experiments of a sweep, several at a time where that is faster."""

import itertools
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from mu2mpi.config.experiment import Experiment
from mu2mpi.config.sweep import Sweep
from mu2mpi.core.errors import Interrupted
from mu2mpi.core.files import file_identity
from mu2mpi.core.options import CHECKPOINT_INTERVAL_SECONDS
from mu2mpi.core.parallel import Communicator
from mu2mpi.core.signals import recording_stop_requests
from mu2mpi.core.text import print_messages
from mu2mpi.data.memory import DataLocation
from mu2mpi.execution.evaluation_schedule import run_seconds
from mu2mpi.execution.job import RunContext, is_result_of
from mu2mpi.execution.plan import Plan, check_settings_on_ranks
from mu2mpi.execution.progress import LogProgress, duration_text, progress_callback
from mu2mpi.execution.sweep_plans import resolve_sweep, unfinished_runs
from mu2mpi.results.callbacks import Callback

MIN_SECONDS_LEFT = 10.0  # Smallest estimate of the time left that is shown
LOG_INTERVAL_SECONDS = 30.0  # Smallest interval between progress lines of a run; sweeps may have hundreds


def run_sweep(
    sweep: Sweep,
    selected_runs: list[tuple[int, Experiment]],
    folder: Path,
    communicator: Communicator,
    *,
    data_dir: DataLocation = None,
    overwrite: bool = False,
    checkpoint_every: float = CHECKPOINT_INTERVAL_SECONDS,
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
) -> tuple[list[Path], list[str]]:
    """Run experiments of a sweep on the ranks of a communicator (see `schedule_runs`).

    Returns the result files, and lines on the runs that are refused.
    """

    def print_on_rank_0(*messages: str) -> None:
        if progress and communicator.rank == 0:
            print_messages(*messages)

    with recording_stop_requests() as requests:
        experiments = [experiment for _, experiment in selected_runs]
        check_settings_on_ranks(experiments, communicator)
        # Like the output of a single run, the folder is that of rank 0.
        folder, is_missing = communicator.bcast_object(folder), list[bool]()
        with communicator.collective_errors():
            if communicator.rank == 0:
                is_missing = [overwrite or not (folder / sweep.file_name(e)).exists() for e in experiments]
        to_read = itertools.compress(experiments, communicator.bcast_object(is_missing))
        resolved = resolve_sweep(sweep, experiments, data_dir, communicator, to_read=to_read)
        refusals = resolved.refusal_lines()
        print_on_rank_0(*sweep.exclusions, *refusals)
        with communicator.collective_errors():
            runs = {folder / sweep.file_name(e): plan for e, plan in resolved.plans.items()}
            # Recorded before the check, so that files written by other jobs from here on are noticed.
            identities = {path: file_identity(path) for path in runs} if communicator.rank == 0 else {}
            todo = unfinished_runs(runs, overwrite) if communicator.rank == 0 else []
        todo, identities = communicator.bcast_object((todo, identities))
        context = RunContext(communicator, lambda: requests.pending, overwrite, checkpoint_every, identities)
        finished = f"{len(runs) - len(todo)} of {len(runs)} runs are finished"
        print_on_rank_0(f"{finished}; {len(todo)} to go")
        machines = [runs[path].constants.problem.machines for path in todo]
        costs = [run_seconds(runs[path]) for path in todo]
        schedule = schedule_runs(machines, costs, communicator.size)
        rank = communicator.rank
        own_costs = [costs[run] / group.group_size for group in schedule for run in group.queue_of(rank)]
        started, positions, own_finished = monotonic(), itertools.count(1), itertools.count()
        for concurrent_runs in schedule:
            numbers = {run: next(positions) for run in concurrent_runs.runs()}
            with _group_context(context, concurrent_runs) as (own_context, queue):
                for run in queue:
                    path, is_concurrent = todo[run], len(concurrent_runs.queues) > 1
                    left = time_left_text(own_costs, next(own_finished), monotonic() - started)
                    label = f"[{numbers[run]}/{len(todo)}{left}]"
                    _run_unless_done(own_context, path, runs[path], label, callbacks, progress, is_concurrent)
        which = "the other" if refusals else "all"
        print_on_rank_0(f"{which} {len(runs)} runs are in {folder}; next: mu2mpi table {folder}")
        return list(runs), refusals


def _run_unless_done(
    context: RunContext,
    path: Path,
    plan: Plan,
    label: str,
    callbacks: Sequence[Callback],
    progress: bool,
    is_concurrent: bool,
) -> None:
    """Run one experiment of a sweep, unless another job has written its result in the meantime."""
    group, run_callbacks = context.communicator, [*callbacks]
    is_done = group.rank == 0 and context.other_job_changed(path) and is_result_of(path, plan.experiment)
    if group.bcast_object(is_done):
        if progress and group.rank == 0:
            print_messages(f"{label} {path}: finished by another job")
        return
    if progress:
        # Several progress bars on one terminal would overwrite each other.
        log = LogProgress(sys.stderr, label, LOG_INTERVAL_SECONDS) if is_concurrent else None
        run_callbacks.append(log or progress_callback(label, LOG_INTERVAL_SECONDS))
    context.run_to_file(plan.experiment, plan.source, path, run_callbacks, plan)


class ConcurrentRuns(NamedTuple):
    """Queues of runs, each processed by a group of `group_size` consecutive ranks, at the same time."""

    group_size: int
    queues: tuple[tuple[int, ...], ...]  # indices of runs, for each group

    def runs(self) -> list[int]:
        """Return the run indices of all queues, in approximate order of their start."""
        return [run for row in itertools.zip_longest(*self.queues) for run in row if run is not None]

    def group_of(self, rank: int) -> int | None:
        """Return the index of a rank's group, or None for a rank without a queue."""
        return group if (group := rank // self.group_size) < len(self.queues) else None

    def queue_of(self, rank: int) -> tuple[int, ...]:
        """Return the queue of a rank's group, empty for a rank without one."""
        return () if (group := self.group_of(rank)) is None else self.queues[group]


def time_left_text(costs: Sequence[float], finished: int, seconds: float) -> str:
    """Text on the time left after the first runs of a rank took some seconds; "" before, and at the end."""
    left = seconds * sum(costs[finished:]) / sum(costs[:finished]) if finished else 0.0
    return f", {duration_text(left)} left" if left >= MIN_SECONDS_LEFT else ""


def schedule_runs(machines: Sequence[int], costs: Sequence[float], ranks: int) -> list[ConcurrentRuns]:
    """Distribute runs over ranks so that all ranks are busy with little communication.

    A run gets one rank. Those with more than the average work per rank get several, and so do the shortest
    if too few remain for all ranks; no run gets more ranks than machines. Runs are grouped by ranks per run.
    """
    order = sorted(range(len(machines)), key=lambda run: (-costs[run], run))
    rank_share = sum(costs) / ranks
    large = sum(cost > rank_share for cost in costs)
    remainder = (len(order) - large) % ranks
    runs_by_group_size: dict[int, list[int]] = {}
    for position, run in enumerate(order):
        group_size = 1
        if position < large:
            # By rounding errors, a single run may need more than all ranks.
            group_size = min(ranks, math.ceil(costs[run] / rank_share))
        elif position >= len(order) - remainder:
            group_size = ranks // remainder
        runs_by_group_size.setdefault(min(group_size, machines[run]), []).append(run)
    return [_assign_queues(size, runs, costs, ranks) for size, runs in runs_by_group_size.items()]


def _assign_queues(group_size: int, runs: list[int], costs: Sequence[float], ranks: int) -> ConcurrentRuns:
    """Assign runs, longest first, to groups of ranks: each run to the group that is free first."""
    count = min(ranks // group_size, len(runs))
    if count == 1:
        # Ranks without machines still take part in evaluations.
        return ConcurrentRuns(ranks, (tuple(runs),))
    queues: list[list[int]] = [[] for _ in range(count)]
    busy_until = [0.0] * count
    for run in runs:
        group = busy_until.index(min(busy_until))
        queues[group].append(run)
        busy_until[group] += costs[run]
    return ConcurrentRuns(group_size, tuple(map(tuple, queues)))


@contextmanager
def _group_context(
    context: RunContext, concurrent_runs: ConcurrentRuns
) -> Iterator[tuple[RunContext, tuple[int, ...]]]:
    """Yield context and queue of this rank's group; a failure or interrupt of a group ends all ranks."""
    all_ranks, stopped_after = context.communicator, None
    if len(concurrent_runs.queues) == 1:
        yield context, concurrent_runs.queues[0]
        return
    with all_ranks.split(concurrent_runs.group_of(all_ranks.rank)) as group:
        with all_ranks.collective_errors():
            try:
                queue = concurrent_runs.queue_of(all_ranks.rank)
                yield replace(context, communicator=group or all_ranks), queue
            except Interrupted as stop:
                stopped_after = stop.rounds_done
        stops = [rounds for rounds in all_ranks.allgather(stopped_after) if rounds is not None]
    if stops:
        raise Interrupted(max(stops))
