"""Descriptions of data sets for ``mu2mpi data``, and schema templates for data files."""

import importlib.resources
import math
from pathlib import Path
from typing import Any

import tomli_w

from mu2mpi.core.errors import InputError
from mu2mpi.data.column_values import parse_number
from mu2mpi.data.formats.format import open_data_file
from mu2mpi.data.redaction import format_names, safe_text
from mu2mpi.data.source import DataRequest, DataSource
from mu2mpi.data.table_schema import COLUMN_TYPES


def describe_source(source: type[DataSource], request: DataRequest) -> str:
    """Download missing files of a data set, validate it, and describe its content and files as text."""
    paths = source.fetch(request.data_dir)
    data_set: Any = source.open(request)
    labels = f"{data_set.classes} classes"
    if data_set.label_range is not None:
        labels = "labels from {:g} to {:g}".format(*data_set.label_range)
    lines = [
        f"{request.data}: {data_set.training_samples} training and {data_set.test_samples} test samples, "
        f"{data_set.dimension} features and a bias, {labels}"
    ]
    if data_set.schema_toml is not None:
        _ = data_set.digest  # reads all rows, and so counts invalid values
        norm = math.sqrt(data_set.max_squared_norm)
        lines.append(f"  features, of norm at most {norm:.4g}: {format_names(data_set.feature_names)}")
        counts = data_set.invalid_values if data_set.is_public else {}
        lines += [f"  {safe_text(n)}: {k} values missing, {m} outside" for n, (k, m) in counts.items()]
    if data_set.class_names is not None:
        lines.append(f"  classes in the model's order: {format_names(data_set.class_names)}")
    if data_set.has_owners:
        sizes, has_public_sizes = data_set.owner_sizes, data_set.schema_toml is None or data_set.is_public
        size_range = f" with {sizes.min()} to {sizes.max()} training samples" if has_public_sizes else ""
        lines.append(f"  {len(sizes)} owners{size_range}")
    return "\n".join(lines + [f"  {path}" for path in paths])


def schema_template(file_name: str) -> str | None:
    """TOML template of a schema with the column names of a data file but no values; None without names.

    InputError if the first line seems to be a row of the table, which might be private, instead of names.
    """
    file = open_data_file(Path(file_name).expanduser())
    names = file.column_names
    if file.has_feature_matrix or all(map(str.isdecimal, names)):
        return None
    if file.has_header and any(parse_number(name) is not None for name in names):
        raise InputError(
            f"line 1 of {file_name} has numbers, so that it seems to be a row instead of the names of the "
            "columns. Add a first line with their names, none of them a number."
        )
    types = "\n".join("#   type = " + f'"{n}"'.ljust(17) + text for n, (_, text) in COLUMN_TYPES.items())
    blanks = {name: {"type": ""} for name in names}
    text = importlib.resources.files("mu2mpi.data").joinpath("schema.toml").read_text("utf-8")
    return text.format(types=types) + tomli_w.dumps({"test": 0.2, "columns": blanks})
