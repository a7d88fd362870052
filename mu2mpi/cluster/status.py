"""How far the runs of a job are: from their files, the queue, and a note of what was submitted."""

import tomllib
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import tomli_w

from mu2mpi.cluster.slurm import task_states
from mu2mpi.config.experiment import Experiment
from mu2mpi.errors import InputError
from mu2mpi.files import write_whole
from mu2mpi.results.collection import names_of
from mu2mpi.results.reader import read_experiment
from mu2mpi.results.schema import checkpoint_path


def note_submission(path: Path, **facts: Any) -> None:
    """Add a job to the note of those that were submitted."""
    jobs = [*_submissions(path), {"submitted": datetime.now().astimezone(), **facts}]
    write_whole(path, [tomli_w.dumps({"job": jobs}).encode()])


def _submissions(path: Path) -> list[dict[str, Any]]:
    try:
        jobs: list[dict[str, Any]] = tomllib.loads(path.read_text("utf-8"))["job"]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"cannot read {path}, the note of submitted jobs: {error}; remove it") from None
    return jobs


def status(runs: Sequence[tuple[Experiment, Path]], note: Path) -> str:
    """Say how many runs are done, running, left and failed, and name some of the last.

    Running is what has a checkpoint and a task that is running; failed is what was submitted, has no result
    and no task in the queue; and the rest is left. Raises InputError if SLURM has to be asked and does not
    answer.
    """
    # A sweep that has changed since has other parts.
    jobs = [job for job in _submissions(note) if job["runs"] == len(runs)]
    found: dict[str, list[Path]] = {"done": [], "running": [], "left": [], "failed": []}
    missing = {place: path for place, (experiment, path) in enumerate(runs) if not _is_done(experiment, path)}
    states = task_states() if jobs and missing else {}
    for place, (_, path) in enumerate(runs):
        of_run = [states.get((job["number"], place % job["parts"])) for job in jobs]
        if place not in missing:
            found["done"].append(path)
        elif "RUNNING" in of_run and checkpoint_path(path).exists():
            found["running"].append(path)
        else:
            found["failed" if jobs and not any(of_run) else "left"].append(path)
    text = f"{counted(len(runs), 'run')}: " + ", ".join(f"{len(of):,} {state}" for state, of in found.items())
    if failed := [path.name for path in found["failed"]]:
        text += f"\nfailed: {names_of(failed)}; see their logs, and submit again to run what is missing"
    return text


def counted(number: int, what: str) -> str:
    """Return a number of things in words."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _is_done(experiment: Experiment, path: Path) -> bool:
    """Return whether a file is a result with every setting that the experiment has before it is resolved."""
    try:
        found = read_experiment(path) if path.exists() else None
    except InputError:
        return False
    return found is not None and all(getattr(found, n) == v for n, v in experiment.settings().items())
