"""Cluster jobs of experiments and sweeps: job script, and estimated cost."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from mu2mpi.cluster import job_script, slurm
from mu2mpi.config.sweep import Sweep
from mu2mpi.core.errors import InputError
from mu2mpi.core.parallel import Communicator
from mu2mpi.core.text import warn
from mu2mpi.execution.evaluation_schedule import run_seconds
from mu2mpi.execution.plan import Plan
from mu2mpi.execution.progress import duration_text
from mu2mpi.execution.sweep_plans import resolve_sweep, unfinished_runs

TASK_STARTUP_SECONDS = 20.0  # Start of a task: launcher, imports and compilation


class RunCost(NamedTuple):
    """Estimated cost of one run of an experiment."""

    seconds: float  # Of computation on one core
    machines: int  # Largest number of ranks that can share the computation


def task_seconds(costs: Sequence[RunCost], tasks: int, ranks: int) -> list[float]:
    """Estimated seconds of each array task on `ranks` ranks; task k executes the runs ``costs[k::tasks]``."""
    seconds = []
    for runs in (costs[k::tasks] for k in range(tasks)):
        longest = [run.seconds / min(ranks, run.machines) for run in runs]
        seconds.append(TASK_STARTUP_SECONDS + max([sum(run.seconds for run in runs) / ranks, *longest]))
    return seconds


def choose_task_count(costs: Sequence[RunCost], ranks: int, time_limit: float, max_tasks: int) -> int:
    """Choose the number of array tasks, each about a tenth of the time limit (in seconds) long."""
    max_tasks = max(1, min(max_tasks, len(costs)))
    # The margin covers rough estimates and slow cores. No task should take more than a tenth of a day.
    target = 0.1 * min(time_limit, 86_400.0)
    tasks = min(max_tasks, max(1, math.ceil(sum(run.seconds for run in costs) / ranks / target)))
    while tasks < max_tasks and max(task_seconds(costs, tasks, ranks)) > TASK_STARTUP_SECONDS + target:
        tasks = min(max_tasks, tasks + 1 + tasks // 50)
    return tasks


@dataclass(frozen=True)
class SweepJob:
    """Job for all runs of a sweep; a single experiment is a sweep without swept options."""

    config: Path
    sweep: Sweep
    output: Path  # Folder of the results, or result file of a single experiment
    options: job_script.JobOptions

    @cached_property
    def result_paths(self) -> list[Path]:
        """Path of the result file of each run."""
        if not self.sweep.swept_names:
            return [self.output]
        return [self.output / self.sweep.file_name(experiment) for experiment in self.sweep.experiments]

    @cached_property
    def runs(self) -> dict[Path, Plan]:
        """Plan of each run, by result file; warns of runs that are refused, InputError if all are."""
        experiments, ranks = self.sweep.experiments, self.options.ranks
        data_dir = Path(self.options.data_dir) if self.options.data_dir else None
        resolved = resolve_sweep(self.sweep, experiments, data_dir, Communicator(), ranks)
        if lines := [*self.sweep.exclusions, *resolved.refusal_lines()]:
            warn("\n".join(lines))
        paths = dict(zip(experiments, self.result_paths, strict=True))
        return {paths[experiment]: plan for experiment, plan in resolved.plans.items()}

    @cached_property
    def run_costs(self) -> list[RunCost]:
        """Estimated cost of each run, in the order of `runs`."""
        return [RunCost(run_seconds(plan), plan.constants.problem.machines) for plan in self.runs.values()]

    @cached_property
    def tasks(self) -> int:
        """Number of array tasks of the job, which divide the runs evenly."""
        max_tasks = slurm.max_array_tasks() if len(self.result_paths) > 1 else 1
        time_limit = job_script.time_limit_seconds(self.options.time)
        return choose_task_count(self.run_costs, self.options.ranks, time_limit, max_tasks)

    def script(self) -> str:
        """Render the job script; warn if a task may exceed its time limit."""
        limit, signal_seconds = job_script.time_limit_seconds(self.options.time), self.options.signal_seconds
        # SLURM rounds time limits up to minutes.
        if 60 * math.ceil(min(limit, 1e9) / 60) < signal_seconds + TASK_STARTUP_SECONDS:
            needed = f"--signal-seconds {signal_seconds} and a start of {TASK_STARTUP_SECONDS:.0f} s"
            raise InputError(f"--time {self.options.time} is less than {needed}. Use a larger --time.")
        longest = max(task_seconds(self.run_costs, self.tasks, self.options.ranks))
        if longest > limit:
            excess = f"a task may take {duration_text(longest)}, more than --time {self.options.time}"
            warn(f"{excess}, and resume after a requeue. Use a larger --time or --ntasks to avoid that.")
        command = ["sweep", self.config] if self.sweep.swept_names else ["run", "--config", self.config]
        command += ["--output", self.output]
        return job_script.render_job_script(self.config.stem, [*map(str, command)], self.options, self.tasks)

    def summary(self) -> str:
        """Tasks, remaining runs and estimated cost; InputError if a result file is of another experiment."""
        ranks, remaining_paths = self.options.ranks, set(unfinished_runs(self.runs, overwrite=False))
        all_costs = zip(self.runs, self.run_costs, strict=True)
        costs = [run if path in remaining_paths else RunCost(0.0, run.machines) for path, run in all_costs]
        seconds = task_seconds(costs, self.tasks, ranks)
        hours = sum(seconds) * ranks * self.options.cpus_per_task / 3600
        return (
            f"tasks: {self.tasks:,}; runs per task: {math.ceil(len(self.runs) / self.tasks):,}; "
            f"ranks: {ranks:,}; remaining runs: {len(remaining_paths):,} of {len(self.runs):,}\n"
            f"rough estimate: {hours:.2g} core-hours, at most {duration_text(max(seconds))} per task\n"
            f"results: {self.output}"
        )
