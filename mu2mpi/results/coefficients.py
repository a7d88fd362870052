"""Encoding of new samples for predictions, and model coefficients in the units of the data columns."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.core.arrays import FloatArray
from mu2mpi.core.errors import InputError
from mu2mpi.data.formats import format as data_format
from mu2mpi.data.formats.format import OWNER_COLUMN, DataFile, open_data_file
from mu2mpi.data.memory import MemoryFile
from mu2mpi.data.redaction import format_names, to_nfc
from mu2mpi.data.source import FEATURE_BOUND_RTOL
from mu2mpi.data.table_schema import EncodedTable, InvalidValues, Schema

# Names, offsets and scales of features, computed from data columns as (column - offset) / scale
FeatureUnits = tuple[tuple[str, ...], FloatArray, FloatArray]
X_NAME = Path("X")  # Name of samples in memory in error messages
SAMPLE_SCALING_NOTE = (
    "Each sample was scaled by a factor of its own, so that there are no common coefficients in the columns' "
    "own units."
)


def encode_features(schema: Schema, X: Any) -> NDArray[np.float32]:
    """Encode the columns of new samples X by a table schema, as model features of shape (n, features)."""
    value_types = {name: kind for name, kind in schema.value_types.items() if name in schema.features}
    file = _open_columns(X)
    if file is None:
        raise InputError("this model needs named columns: a data frame, a mapping by name, or a file")
    _check_columns(file.path, value_types, file.column_names)
    table = EncodedTable(file, schema, InvalidValues(), value_types)
    return table.features(np.arange(table.samples))


def feature_matrix(X: Any, result: Any) -> NDArray[Any]:
    """Return the features of new samples X, shape (n, features), for a `Result` without a table schema.

    Files are read as in training. Features are at most ``1 / feature_scale``, unless scaled to unit norm.
    """
    n_features = result.x.shape[1] - 1
    file = _open_columns(X, n_features)
    features = np.asarray(X) if file is None else _read_features(file, result, n_features)
    features, source = np.atleast_2d(features), X_NAME if file is None else file.path
    if len(features) == 0:
        raise InputError(f"{source} is empty: it has no rows")
    features = features.reshape(len(features), -1)
    if features.shape[1] != n_features:
        fault = f"{source} has {features.shape[1]} features per sample"
        raise InputError(f"{fault}; the model needs {n_features}")
    if features.dtype.kind not in "biuf":
        raise InputError(f"{source} has features that are not numbers, of type {features.dtype}")
    is_unbounded = result.experiment.normalize == "unit"
    max_magnitude = np.inf if is_unbounded else (1 + FEATURE_BOUND_RTOL) / result.feature_scale
    max_feature = np.abs(features).max(initial=0)
    if not (np.isfinite(max_feature) and max_feature <= max_magnitude):
        bound = f"{1 / result.feature_scale:g}"
        raise InputError(f"{source} has a feature that is not finite or exceeds the bound {bound}")
    return features


def _open_columns(X: Any, dimension: int = 0) -> DataFile | None:
    """Open a data file, or a table in memory; None for an array."""
    if isinstance(X, str | Path):
        return open_data_file(Path(X).expanduser(), dimension)
    return MemoryFile(X_NAME, X) if isinstance(X, Mapping) or hasattr(X, "columns") else None


def _check_columns(path: Path, required: Iterable[str], columns: list[str]) -> None:
    if missing := [name for name in required if name not in columns]:
        raise InputError(f"{path} has no column {format_names(missing)}, which the model was trained on")


def _read_features(file: DataFile, result: Any, n_features: int) -> NDArray[Any]:
    """Read features from a file or table as a run does, with or without labels: shape (n, n_features)."""
    experiment = result.experiment
    if not (file.has_header or file.is_table):
        columns = [data_format.find_array_name(file.path, file.array_names, experiment.features, "features")]
    elif result.feature_names:
        columns = [*map(to_nfc, result.feature_names)]
        _check_columns(file.path, columns, file.array_names)
    elif len(columns := [name for name in file.array_names if name != OWNER_COLUMN]) != n_features:
        # The surplus column may be the label, as in training.
        default_labels = data_format.DEFAULT_ARRAY_NAMES["labels"]
        label = experiment.labels or next((name for name in default_labels if name in columns), None)
        columns = [name for name in columns if label is None or name != to_nfc(label)]
    if not columns:
        raise InputError(f"{file.path} has no features; the model needs {n_features}")
    arrays = file.arrays(dict.fromkeys(columns, "numbers")).values()
    matrices = [array[np.arange(array.shape[0])] for array in arrays]
    return np.column_stack([m if isinstance(m, np.ndarray) else m.toarray() for m in matrices])


@dataclass(frozen=True, eq=False)
class Coefficients:
    """Coefficients of a linear model."""

    row_names: tuple[str, ...]  # of the model: classes, or the label
    terms: tuple[str, ...]  # names of the features, and of the intercept
    values: FloatArray  # shape (rows, terms)
    notes: tuple[str, ...]  # meaning of the values, as sentences


def compute_coefficients(result: Any) -> Coefficients:
    """Convert the model of a `Result` to coefficients per unit of each data column."""
    problem, x, label_range = result.problem, result.x, result.label_range
    scaling, loss_function, features = problem.feature_scaling, problem.loss, x.shape[1] - 1
    if result.schema is not None and not scaling.is_per_sample:
        terms, offsets, scales = column_units(result.schema)
    else:
        terms = result.feature_names or tuple(map(str, range(features)))
        scale = 1.0 if scaling.is_per_sample else 1.0 / result.feature_scale
        offsets, scales = np.zeros(features), np.full(features, scale)
    # The margin is linear in columns v: sum of w (v - offset) / scale, and the bias.
    slopes = x[:, :-1] / scales
    intercepts = scaling.bias_feature * x[:, -1] - slopes @ offsets
    label_scale, label_offset, label_class = 1.0, 0.0, " of the class"
    if label_range is not None:
        (label_scale, label_offset), label_class = loss_function.margin_to_label_units(*label_range), ""
    values = np.column_stack([label_scale * slopes, label_scale * intercepts + label_offset])
    column = "its column, in the column's own units,"
    if scaling.is_per_sample:
        column = "a feature scaled to [-1, 1]"
    meaning = f"Each value is what a unit of {column} adds to {loss_function.margin_meaning}{label_class}."
    notes = (meaning, *[SAMPLE_SCALING_NOTE] * scaling.is_per_sample)
    return Coefficients(result.model_row_names, (*terms, "(intercept)"), values, notes)


def column_units(schema: Schema) -> FeatureUnits:
    """Return name, offset and scale of each feature of a data table with a schema."""
    terms, offsets, scales = list[str](), list[float](), list[float]()
    for name, column in schema.features.items():
        low, high = column.range or (0, len(column.categories or (False, True)) - 1)
        offset, scale = low / 2 + high / 2, high / 2 - low / 2
        if column.type == "categorical":
            offset, scale = 0.0, 1.0
        names = column.feature_names(name)
        # Unit of a column without numbers, appended to its name.
        suffixes = {"boolean": f" = {'true' if column.true is None else column.true}", "ordinal": " (a step)"}
        terms += [name + suffixes.get(column.type, "")] if len(names) == 1 else names
        offsets += [offset] * len(names)
        scales += [scale] * len(names)
    return tuple(terms), np.array(offsets), np.array(scales)
