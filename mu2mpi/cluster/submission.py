"""The job of an experiment or a sweep: its script, its submission, and how far its runs are."""

import math
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import tomli_w

from mu2mpi.cluster.job_script import Request, limit_seconds, render_job, render_table, slurm_directives
from mu2mpi.cluster.slurm import most_tasks, submit, task_states
from mu2mpi.config.experiment import Experiment
from mu2mpi.config.sweep import Sweep
from mu2mpi.core.errors import InputError
from mu2mpi.core.files import write_whole
from mu2mpi.core.parallel import Communicator
from mu2mpi.core.registry import import_options
from mu2mpi.core.text import say, warn
from mu2mpi.core.toml import read_toml
from mu2mpi.execution.evaluation_schedule import planned_measurements, run_cost
from mu2mpi.execution.plan import Plan
from mu2mpi.execution.sweep_runner import open_all, resolve_sweep, unfinished
from mu2mpi.results.reader import read_experiment
from mu2mpi.results.records import checkpoint_path
from mu2mpi.results.result_files import names_of

# What it takes to start a task, and a run in it: to try launchers, import, compile; to write files
START_SECONDS, RUN_SECONDS = 20.0, 0.1


class Load(NamedTuple):
    """What a run costs: seconds on one core, of which at most so many machines can take their part."""

    seconds: float
    machines: int


def task_seconds(loads: Sequence[Load], parts: int, ranks: int) -> list[float]:
    """Return what each part of a sweep is expected to take: every rank is busy, or one run is the longest."""
    seconds = []
    for task in (loads[k::parts] for k in range(parts)):
        each = [load.seconds / min(ranks, load.machines) for load in task]
        seconds.append(START_SECONDS + max([sum(load.seconds for load in task) / ranks, *each]))
    return seconds


def pack(loads: Sequence[Load], ranks: int, limit: float, most: int) -> int:
    """Return the number of parts, at most `most`, such that each takes a tenth of the limit in seconds."""
    most = max(1, min(most, len(loads)))
    # Costs are rough, and cores differ; nor should a task take more than a tenth of a day.
    goal = 0.1 * min(limit, 86_400.0)
    parts = min(most, max(1, math.ceil(sum(load.seconds for load in loads) / ranks / goal)))
    while parts < most and max(task_seconds(loads, parts, ranks)) > START_SECONDS + goal:
        parts = min(most, parts + 1 + parts // 50)
    return parts


@dataclass(frozen=True)
class SweepJob:
    """A job for all runs of a sweep, or for one run: a sweep that varies nothing."""

    config: Path
    sweep: Sweep
    output: Path  # a folder, or the file of one run
    request: Request

    @cached_property
    def paths(self) -> list[Path]:
        """The result of each run."""
        if not self.sweep.swept:
            return [self.output]
        return [self.output / self.sweep.file_name(experiment) for experiment in self.sweep.experiments]

    @cached_property
    def runs(self) -> dict[Path, Plan]:
        """All runs, with nothing open; InputError if the data are not here, or do not suit one of them."""
        experiments, ranks = self.sweep.experiments, self.request.ranks
        plans = resolve_sweep(self.sweep, experiments, self._data, Communicator(), ranks)
        paths = dict(zip(experiments, self.paths, strict=True))
        return {paths[experiment]: plan for experiment, plan in plans.items()}

    @cached_property
    def why_unknown(self) -> str | None:
        """Why nothing is known of what the runs cost: their data cannot be opened here."""
        try:
            open_all(self.sweep.experiments, self._data, Communicator())
        except InputError as error:
            return str(error)
        return None

    @property
    def _data(self) -> Path | None:
        return Path(self.request.data_dir) if self.request.data_dir else None

    @cached_property
    def loads(self) -> list[Load]:
        """What each run costs, from its size alone."""
        loads = []
        for plan in self.runs.values():
            nanoseconds = run_cost(plan.constants) + planned_measurements(plan).cost(plan.constants)
            loads.append(Load(RUN_SECONDS + nanoseconds * 1e-9, plan.constants.task.machines))
        return loads

    @cached_property
    def parts(self) -> int:
        """Into how many tasks the runs are packed: a function of the sweep, the time limit and the site."""
        most = most_tasks() if len(self.paths) > 1 else 1
        if self.why_unknown is not None:
            return min(most, len(self.paths))
        return pack(self.loads, self.request.ranks, limit_seconds(self.request.time), most)

    def script(self) -> str:
        """Return the script, having warned if a task of it will hardly end in time, or who knows when."""
        if self.why_unknown is not None:
            warn(
                f"{self.why_unknown}\nSo it is not known how long runs take, and each has a task of its own, "
                "as far as the site allows; print the script anew where the data are"
            )
        else:
            longest = max(task_seconds(self.loads, self.parts, self.request.ranks))
            if longest > limit_seconds(self.request.time):
                warn(
                    f"a task may take {_minutes(longest)}, and its time limit is "
                    f"{self.request.time}; it then goes on after a requeue, or give more --time or --ntasks"
                )
        words = ["sweep", self.config] if self.sweep.swept else ["run", "--config", self.config]
        words += ["--output", self.output]
        return render_job(self.config.stem, [str(word) for word in words], self.request, self.parts)

    def submit(self) -> None:
        """Hand the script to sbatch, and print its number and cost."""
        # First of all, since the data have to be here.
        todo = set(unfinished(self.runs, overwrite=False))
        script = self.script()
        if not todo:
            say(f"all {len(self.runs):,} runs are in {self.output}; nothing is submitted")
            return
        job = submit(script)
        print(f"Submitted batch job {job}", flush=True)
        asked = self.request.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        facts = {"number": job, "parts": self.parts, "runs": len(self.runs), "options": asked}
        jobs = [*self._submissions(), {"submitted": datetime.now().astimezone(), **facts}]
        write_whole(self._note, [tomli_w.dumps({"job": jobs}).encode()])
        self._tell(job, todo)
        if self.request.after_table:
            after = submit(render_table(str(self.output), self.request, job))
            say(f"then job {after} prints the table into table-{job}.txt")

    def _tell(self, job: str, todo: set[Path]) -> None:
        """Say what was submitted, what it will take, and where to look."""
        ranks, each = self.request.ranks, math.ceil(len(self.runs) / self.parts)
        costs = zip(self.runs, self.loads, strict=True)
        loads = [load if path in todo else Load(0.0, load.machines) for path, load in costs]
        seconds = task_seconds(loads, self.parts, ranks)
        hours = sum(seconds) * ranks * self.request.cpus_per_task / 3600
        directives = slurm_directives(self.config.stem, self.request, self.parts)
        signs = {"%x": directives["job-name"], "%A": job, "%j": job, "%a": "*"}
        log = re.sub("%[xAja]", lambda sign: str(signs[sign[0]]), str(directives["output"]))
        words = [*import_options(), str(self.config), "-o", str(self.output), "--status"]
        again = shlex.join(["mu2mpi", "job", *words])
        say(
            f"job {job}: tasks: {self.parts:,}; runs in each: {each:,}; ranks: {ranks:,}; "
            f"runs to go: {len(todo):,} of {len(self.runs):,}\n"
            f"expected, roughly: {hours:.2g} core-hours, at most {_minutes(max(seconds))} a task\n"
            f"results: {self.output}; logs: {log}\nto watch it: {again}; squeue -j {job}"
        )

    @property
    def _note(self) -> Path:
        if self.sweep.swept:
            return self.output / f".{self.config.stem}.jobs.toml"
        return self.output.with_name(f".{self.output.name}.jobs.toml")

    def _submissions(self) -> list[dict[str, Any]]:
        return read_toml(self._note)["job"] if self._note.exists() else []

    def status(self) -> str:
        """Numbers of runs that are done, running, left and failed (neither finished nor queued)."""
        # A sweep that has changed since has other parts.
        jobs = [job for job in self._submissions() if job["runs"] == len(self.paths)]
        is_done = [_is_done(*run) for run in zip(self.sweep.experiments, self.paths, strict=True)]
        states = {} if all(is_done) or not jobs else task_states()
        found: dict[str, list[str]] = {"done": [], "running": [], "left": [], "failed": []}
        for place, path in enumerate(self.paths):
            of_run = [states.get((job["number"], place % job["parts"])) for job in jobs]
            state = "failed" if jobs and not any(of_run) else "left"
            if is_done[place]:
                state = "done"
            elif "RUNNING" in of_run and checkpoint_path(path).exists():
                state = "running"
            found[state].append(path.name)
        counts = ", ".join(f"{len(runs):,} {state}" for state, runs in found.items())
        text = f"{self.output}: {counts}"
        if found["failed"]:
            text += f"\nfailed: {names_of(found['failed'])}; see their logs, and submit again to run them"
        return text


def _is_done(experiment: Experiment, path: Path) -> bool:
    """Return whether a file is a result with every setting that the experiment has before it is resolved."""
    try:
        found = read_experiment(path) if path.exists() else None
    except InputError:
        return False
    return found is not None and all(getattr(found, n) == v for n, v in experiment.settings().items())


def _minutes(seconds: float) -> str:
    return f"{max(1, round(seconds / 60)):,} min"
