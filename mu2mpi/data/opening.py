"""Open the data of an experiment, and say what they are."""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from mu2mpi.data.options import is_file
from mu2mpi.data.source import Source
from mu2mpi.errors import InputError
from mu2mpi.problem.base import Problem
from mu2mpi.registry import find

if TYPE_CHECKING:
    from mu2mpi.config.experiment import Experiment

SHOWN = 20  # names of classes that a description lists


def open_source(experiment: "Experiment", data_dir: Path | None = None, verify: bool = True) -> Source:
    """Open the data of an experiment; nothing is downloaded.

    Any number of processes may call this at once, but it is kinder to let one of a node do it first, with
    `verify`, and the others after it without: checksums are then compared, and damage is looked for that
    could hang a process. The folder `data_dir` holds one for each data set; by default it is
    ``MU2MPI_DATA_DIR``, or else the user's cache. InputError if data are missing or damaged.
    """
    source = _source_class(experiment.data).open(experiment, data_dir, verify)
    problem: Problem = find("problems", experiment.loss)
    if problem.labels == "numbers":
        source.take_numbers()
    if source.label_range is not None:
        if problem.labels == "classes":
            raise InputError(
                f"loss = {problem.name} tells classes apart, and the label of {source.name} is a number; "
                "give --loss squared, or declare its classes"
            )
        problem.check_range(*source.label_range)
    return source


def _source_class(data: str) -> type[Source]:
    """Return the class of what an experiment's option `data` names; a run imports no other source."""
    name = "user_file" if is_file(data) else data
    # The class in user_file is UserFile, and so on.
    found: type[Source] = getattr(import_module(f"mu2mpi.data.sources.{name}"), name.title().replace("_", ""))
    return found


def describe_source(experiment: "Experiment", data_dir: Path | None = None) -> str:
    """Get data ready, downloaded if need be, and checked; say what and where they are."""
    paths = _source_class(experiment.data).fetch(data_dir)
    source = open_source(experiment, data_dir, verify=not paths)
    lines = [
        f"{experiment.data}: {source.training_samples} training and {source.test_samples} test samples, "
        f"{source.dimension} features and a bias, {source.classes} classes"
    ]
    if source.class_names is not None:
        names = ", ".join(source.class_names[:SHOWN]) + (", ..." if source.classes > SHOWN else "")
        lines.append(f"  in the order of the model: {names}")
    if source.has_owners:
        sizes = source.owner_sizes
        lines.append(f"  {len(sizes)} owners of {sizes.min()} to {sizes.max()} training samples")
    return "\n".join(lines + [f"  {path}" for path in paths])
