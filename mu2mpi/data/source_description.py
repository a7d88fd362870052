"""Descriptions of data sources for ``mu2mpi data``, and schema templates for files."""

import importlib.resources
import math
from pathlib import Path
from typing import Any

import tomli_w

from mu2mpi.core.errors import InputError
from mu2mpi.data.formats.format import is_data_file, open_data_file
from mu2mpi.data.redaction import format_names, printable
from mu2mpi.data.source import DataRequest, Source
from mu2mpi.data.table_schema import COLUMN_TYPES, parse_schema


def describe_source(source: type[Source], request: DataRequest) -> str:
    """Download what is missing, validate the data, and return a description of their content and files."""
    paths = source.fetch(request.data_dir)
    opened = source.open(request)
    labels = f"{opened.classes} classes"
    if opened.label_range is not None:
        labels = "labels from {:g} to {:g}".format(*opened.label_range)
    lines = [
        f"{request.data}: {opened.training_samples} training and {opened.test_samples} test samples, "
        f"{opened.dimension} features and a bias, {labels}"
    ]
    if opened.schema_toml is not None:
        lines += [f"  {line}" for line in _describe_columns(opened, opened.schema_toml)]
    if opened.class_names is not None:
        lines.append(f"  classes in the model's order: {format_names(opened.class_names)}")
    if opened.has_owners:
        sizes, has_public_sizes = opened.owner_sizes, opened.schema_toml is None or opened.is_public
        extent = f" with {sizes.min()} to {sizes.max()} training samples" if has_public_sizes else ""
        lines.append(f"  {len(sizes)} owners{extent}")
    return "\n".join(lines + [f"  {path}" for path in paths])


def schema_template(data: str) -> str:
    """TOML template of a schema with the column names of a file; no value of the file enters it."""
    if not is_data_file(data):
        raise InputError(f"--schema-template needs a data file, got {data}")
    names = open_data_file(Path(data).expanduser()).column_names
    types = "\n".join("#   type = " + f'"{n}"'.ljust(17) + text for n, (_, text) in COLUMN_TYPES.items())
    blanks = {name: {"type": ""} for name in names}
    text = importlib.resources.files("mu2mpi.data").joinpath("schema.toml").read_text("utf-8")
    return text.format(types=types) + tomli_w.dumps({"test": 0.2, "columns": blanks})


def _describe_columns(source: Any, schema_toml: str) -> list[str]:
    """Validate a file and describe its columns by the schema alone, with counts of flaws if it is public."""
    _ = source.digest  # reads all rows, and so counts their flaws
    schema, flaws = parse_schema(schema_toml), source.flaws if source.is_public else {}
    width = max(map(len, schema.columns))
    lines = []
    for name, column in schema.columns.items():
        count = len(column.feature_names(name))
        features = f", {count} feature{'s' if count > 1 else ''}" if count else ""
        line = f"{printable(name):{width}}  {column.type}{column.declaration}{features}"
        if name in flaws:
            line += "; {} values missing, {} outside".format(*flaws[name])
        lines.append(line)
    norm = f"{math.sqrt(source.max_squared_norm):.4g}, the root of {source.max_squared_norm:g} columns"
    return [*lines, f"norm of the features: at most {norm}"]
