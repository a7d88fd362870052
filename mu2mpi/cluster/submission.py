"""The job of an experiment or a sweep: its script, its submission, and how far it is."""

import math
import shlex
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mu2mpi.cluster.packing import Load, load_of, pack, task_seconds
from mu2mpi.cluster.request import Request, limit_seconds
from mu2mpi.cluster.script import render_job, render_table, slurm_directives
from mu2mpi.cluster.slurm import most_tasks, submit
from mu2mpi.cluster.status import counted, note_submission, status
from mu2mpi.config.sweep import Sweep
from mu2mpi.errors import InputError
from mu2mpi.execution.sweep import Run, open_all, resolve_sweep, unfinished
from mu2mpi.parallel import Communicator


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
    def runs(self) -> list[Run]:
        """All runs, with nothing open; InputError if the data are not here, or do not suit one of them."""
        experiments, ranks = self.sweep.experiments, self.request.ranks
        plans = resolve_sweep(self.sweep, experiments, self._data, Communicator(), ranks)
        paths = dict(zip(experiments, self.paths, strict=True))
        return [Run(plan, paths[experiment]) for experiment, plan in plans.items()]

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
        return None if self.request.data_dir is None else Path(self.request.data_dir)

    @cached_property
    def parts(self) -> int:
        """Into how many tasks the runs are packed: a function of the sweep, the time limit and the site."""
        most = most_tasks() if len(self.paths) > 1 else 1
        if self.why_unknown is not None:
            return min(most, len(self.paths))
        return pack(self.loads, self.request.ranks, limit_seconds(self.request.time), most)

    @cached_property
    def loads(self) -> list[Load]:
        """What each run costs."""
        return [load_of(run.plan) for run in self.runs]

    @property
    def _longest(self) -> float:
        """What the longest task is expected to take, in seconds."""
        return max(task_seconds(self.loads, self.parts, self.request.ranks))

    def script(self) -> str:
        """Return the script, having warned if a task of it will hardly end in time, or who knows when."""
        if self.why_unknown is not None:
            _say(
                f"mu2mpi: warning: {self.why_unknown}\nSo it is not known how long runs take, and each has "
                "a task of its own, as far as the site allows; print the script anew where the data are"
            )
        elif (longest := self._longest) > limit_seconds(self.request.time):
            _say(
                f"mu2mpi: warning: a task may take {_minutes(longest)}, and its time limit is "
                f"{self.request.time}; it then goes on after a requeue, or give more --time or --ntasks"
            )
        words = ["sweep", self.config] if self.sweep.swept else ["run", "--config", self.config]
        words += ["--output", self.output]
        return render_job(self.config.stem, [str(word) for word in words], self.request, self.parts)

    def submit(self) -> None:
        """Hand the script to sbatch, print its number, and say what is to be expected of it.

        Raises InputError before anything is submitted if a run cannot be settled or its output is taken.
        """
        # First of all, since the data have to be here.
        todo = set(unfinished(self.runs, overwrite=False))
        script = self.script()
        if not todo:
            _say(f"all {len(self.runs):,} runs are in {self.output}; nothing is submitted")
            return
        job = submit(script)
        print(f"Submitted batch job {job}", flush=True)
        asked = self.request.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        note_submission(self._note, number=job, parts=self.parts, runs=len(self.runs), options=asked)
        self._tell(job, todo)
        if self.request.after_table:
            after = submit(render_table(str(self.output), self.request, job))
            _say(f"then job {after} prints the table into table-{job}.txt")

    def _tell(self, job: str, todo: set[int]) -> None:
        """Say what was submitted, what it will take, and where to look."""
        ranks, each = self.request.ranks, math.ceil(len(self.runs) / self.parts)
        loads = [load if n in todo else Load(0.0, load.machines) for n, load in enumerate(self.loads)]
        seconds = task_seconds(loads, self.parts, ranks)
        hours = sum(seconds) * ranks * self.request.cpus_per_task / 3600
        directives = slurm_directives(self.config.stem, self.request, self.parts)
        log = str(directives["output"])
        for sign, meaning in (("%x", directives["job-name"]), ("%A", job), ("%j", job), ("%a", "*")):
            log = log.replace(sign, str(meaning))
        again = shlex.join(["mu2mpi", "job", str(self.config), "-o", str(self.output), "--status"])
        _say(
            f"job {job}: {counted(self.parts, 'task')} of {counted(each, 'run')} "
            f"on {counted(ranks, 'rank')}; {counted(len(todo), 'run')} of {len(self.runs):,} to go\n"
            f"expected, roughly: {hours:.2g} core-hours, at most {_minutes(max(seconds))} a task\n"
            f"results: {self.output}; logs: {log}\n"
            f"to watch it: {again}; squeue -j {job}"
        )

    def status(self) -> str:
        """Return how many runs are done, running, left and failed."""
        found = status(list(zip(self.sweep.experiments, self.paths, strict=True)), self._note)
        return f"{self.output}: {found}"

    @property
    def _note(self) -> Path:
        """The hidden file beside the results that notes what was submitted."""
        if self.sweep.swept:
            return self.output / f".{self.config.stem}.jobs.toml"
        return self.output.with_name(f".{self.output.name}.jobs.toml")


def _minutes(seconds: float) -> str:
    return f"{max(1, round(seconds / 60)):,} min"


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
