"""Open the data of an experiment, and say what they are."""

import importlib.resources
import math
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import find
from mu2mpi.data.options import is_file
from mu2mpi.data.source import Source
from mu2mpi.data.telling import shown
from mu2mpi.losses.base import Problem

if TYPE_CHECKING:
    from mu2mpi.config.experiment import Experiment

SHOWN = 20  # names of classes that a description lists


def open_source(experiment: "Experiment", data_dir: Path | None = None, verify: bool = True) -> Source:
    """Open the data of an experiment; nothing is downloaded.

    With `verify`, checksums of MNIST are compared, which one process of a node should do before the others.
    The folder `data_dir` holds one for each data set; by default it is ``MU2MPI_DATA_DIR``, or else the
    user's cache. InputError if data are missing or damaged.
    """
    source = _opened(experiment, data_dir, verify)
    problem: Problem = find("losses", experiment.loss)
    if problem.labels == "numbers":
        if source.label_range is None and experiment.on_file:
            raise InputError(
                f"loss = {problem.name} learns numbers, and the label of {source.name} is a class; declare "
                "its low and high in the schema, or give --label-range; or give --loss softmax"
            )
        source.take_numbers()
    if source.label_range is not None and problem.labels == "classes":
        raise InputError(
            f"loss = {problem.name} tells classes apart, and the label of {source.name} is a number; "
            "give --loss squared, or declare its classes"
        )
    return source


def _opened(experiment: "Experiment", data_dir: Path | None, verify: bool) -> Source:
    name, options = experiment.data, dict(experiment.source_options)
    if experiment.on_file:
        name, options = "user_file", {"experiment": experiment}
    elif name == "mnist":
        options = {"data_dir": data_dir, "verify": verify}
    # A run imports no other source. The class in user_file is UserFile, and so on.
    module = import_module(f"mu2mpi.data.sources.{name}")
    source: Source = getattr(module, name.title().replace("_", ""))(**options)
    return source


def describe_source(experiment: "Experiment", data_dir: Path | None = None) -> str:
    """Get data ready, downloaded if need be, and checked; say what and where they are."""
    paths = []
    if experiment.data == "mnist":
        from mu2mpi.data.sources.mnist import Mnist

        paths = Mnist.fetch(data_dir)
    source = _opened(experiment, data_dir, verify=False)
    labels = f"{source.classes} classes"
    if source.label_range is not None:
        labels = "labels from {:g} to {:g}".format(*source.label_range)
    lines = [
        f"{experiment.data}: {source.training_samples} training and {source.test_samples} test samples, "
        f"{source.dimension} features and a bias, {labels}"
    ]
    if source.columns is not None:
        lines += [f"  {line}" for line in _told_columns(source, source.columns)]
    if source.class_names is not None:
        names = ", ".join(source.class_names[:SHOWN]) + (", ..." if source.classes > SHOWN else "")
        lines.append(f"  in the order of the model: {names}")
    if source.has_owners:
        sizes, is_told = source.owner_sizes, source.columns is None or experiment.data_is_public
        of = f" of {sizes.min()} to {sizes.max()} training samples" if is_told else ""
        lines.append(f"  {len(sizes)} owners{of}")
    return "\n".join(lines + [f"  {path}" for path in paths])


def schema_template(data: str) -> str:
    """Return the TOML of a schema for a file, with blanks to fill in: no value is looked at."""
    import tomli_w

    from mu2mpi.data.formats.table import open_file
    from mu2mpi.data.schema import TYPES

    if not is_file(data):
        raise InputError(f"a schema is for a file of your own, and {data} is none")
    names = open_file(Path(data).expanduser()).column_names
    types = "\n".join("#   type = " + f'"{name}"'.ljust(17) + text for name, (_, text) in TYPES.items())
    blanks = {name: {"type": ""} for name in names}
    text = importlib.resources.files("mu2mpi.data").joinpath("schema.toml").read_text("utf-8")
    return text.format(types=types) + tomli_w.dumps({"test": 0.2, "columns": blanks})


def _told_columns(source: Any, columns: str) -> list[str]:
    """Read and check a file; say what its schema makes of it, and of public data what does not fit."""
    from mu2mpi.data.schema import parse_schema

    _ = source.digest  # which counts flaws as it reads all that there is
    schema, flaws = parse_schema(columns), source.flaws if source.public else {}
    width = max(map(len, schema.columns))
    lines = []
    for name, column in schema.columns.items():
        count = len(column.feature_names(name))
        made = f", {count} feature{'s' if count > 1 else ''}" if count else ""
        line = f"{shown(name):{width}}  {column.type}{column.told}{made}"
        if name in flaws:
            line += "; {} values missing, {} outside".format(*flaws[name])
        lines.append(line)
    root = f"{math.sqrt(source.square):.4g}, the root of {source.square:g} columns"
    return [*lines, f"no norm of features is over {root}"]
