"""What a source holds, in words, and templates of schemas for its columns."""

import importlib.resources
import math
from pathlib import Path
from typing import Any

import tomli_w

from mu2mpi.core.errors import InputError
from mu2mpi.data.formats.format import is_file, open_file
from mu2mpi.data.redaction import listed, shown
from mu2mpi.data.source import DataRequest, Source
from mu2mpi.data.table_schema import TYPES, parse_schema


def describe_source(source: type[Source], request: DataRequest) -> str:
    """Get data ready, downloaded if need be, and checked; say what and where they are."""
    paths = source.fetch(request.data_dir)
    opened = source.open(request)
    labels = f"{opened.classes} classes"
    if opened.label_range is not None:
        labels = "labels from {:g} to {:g}".format(*opened.label_range)
    lines = [
        f"{request.data}: {opened.training_samples} training and {opened.test_samples} test samples, "
        f"{opened.dimension} features and a bias, {labels}"
    ]
    if opened.columns is not None:
        lines += [f"  {line}" for line in _told_columns(opened, opened.columns)]
    if opened.class_names is not None:
        lines.append(f"  in the order of the model: {listed(opened.class_names)}")
    if opened.has_owners:
        sizes, is_told = opened.owner_sizes, opened.columns is None or opened.public
        of = f" of {sizes.min()} to {sizes.max()} training samples" if is_told else ""
        lines.append(f"  {len(sizes)} owners{of}")
    return "\n".join(lines + [f"  {path}" for path in paths])


def schema_template(data: str) -> str:
    """Return the TOML of a schema for a file, with blanks to fill in: no value is looked at."""
    if not is_file(data):
        raise InputError(f"a schema is for a file of your own, and {data} is none")
    names = open_file(Path(data).expanduser()).column_names
    types = "\n".join("#   type = " + f'"{name}"'.ljust(17) + text for name, (_, text) in TYPES.items())
    blanks = {name: {"type": ""} for name in names}
    text = importlib.resources.files("mu2mpi.data").joinpath("schema.toml").read_text("utf-8")
    return text.format(types=types) + tomli_w.dumps({"test": 0.2, "columns": blanks})


def _told_columns(source: Any, columns: str) -> list[str]:
    """Read and check a file; say what its schema makes of it, and of public data what does not fit."""
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
