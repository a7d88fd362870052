"""Features of new samples for a model: columns of its schema, features as stored, or a file of either."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.data.formats.base import OWNERS, USUAL, columns_of, find_name, open_file
from mu2mpi.data.schema import Encoded, Schema
from mu2mpi.data.source import FEATURE_SLACK
from mu2mpi.data.telling import listed

HERE = Path("X")  # What messages call samples that come from no file


def encoded_features(schema: Schema, given: Any) -> NDArray[np.float32]:
    """Return features as the schema makes them of a file's columns, or of named ones; others may be there."""
    wanted = {name: kind for name, kind in schema.kinds.items() if name in schema.features}
    if isinstance(given, str | Path):
        path = Path(given).expanduser()
        file = open_file(path, max((int(name) for name in wanted if name.isdecimal()), default=0))
        _check_there(path, wanted, file.column_names)
        columns = file.columns(wanted)
    elif isinstance(given, Mapping) or hasattr(given, "columns"):
        _check_there(HERE, wanted, list(given.keys()))
        columns = columns_of(HERE, {name: np.atleast_1d(np.asarray(given[name])) for name in wanted})
    else:
        raise InputError(
            "this model was trained on named columns; give it a data frame, a mapping of names to values, or "
            "the path of a file"
        )
    return Encoded(columns, schema, False, {}).features(np.arange(columns.samples))


def stored_features(
    given: Any,
    experiment: Experiment,
    names: tuple[str, ...] | None,
    width: int,
    scale: float,
    is_unit: bool,
) -> NDArray[Any]:
    """Return features as a matrix, of which each row can be scaled as those were that the model has seen.

    Each sample has `width` features, with `names` or without, of `1 / scale` at most unless `is_unit`.
    """
    is_file = isinstance(given, str | Path)
    features = np.atleast_2d(_read(Path(given), experiment, names, width) if is_file else np.asarray(given))
    where = str(given) if is_file else str(HERE)
    if len(features) == 0:
        raise InputError(f"{where} is empty: it has no rows")
    features = features.reshape(len(features), -1)
    if features.shape[1] != width:
        raise InputError(f"{where} has {features.shape[1]} features a sample, and the model {width}")
    if features.dtype.kind not in "biuf":
        raise InputError(f"{where} has features that are no numbers, of the type {features.dtype}")
    limit = np.inf if is_unit else (1 + FEATURE_SLACK) / scale
    largest = np.abs(features).max(initial=0)
    if not (np.isfinite(largest) and largest <= limit):
        raise InputError(
            f"{where} has a feature that is not finite, or beyond the {1 / scale:g} that the model "
            "was trained with; scale features as those were"
        )
    return features


def _check_there(path: Path, wanted: Iterable[str], there: list[str]) -> None:
    if gone := [name for name in wanted if name not in there]:
        raise InputError(f"{path} has no column {listed(gone)}, which the model was trained on")


def _read(path: Path, experiment: Experiment, names: tuple[str, ...] | None, width: int) -> NDArray[Any]:
    """Return the features of a file as a run reads them; it need not have labels."""
    file = open_file(path.expanduser(), width)
    if not (file.has_header or file.is_table):
        chosen = [find_name(path, file.names, experiment.features, "features")]
    elif names:
        chosen = list(names)
        _check_there(path, chosen, file.names)
    elif len(chosen := [name for name in file.names if name != OWNERS]) != width:
        # One may be the label, as in training.
        label = experiment.labels or next((name for name in USUAL["labels"] if name in chosen), None)
        chosen = [name for name in chosen if name != label]
    arrays = file.arrays(dict.fromkeys(chosen, "numbers")).values()
    rows = [array[np.arange(array.shape[0])] for array in arrays]
    return np.column_stack([part if isinstance(part, np.ndarray) else part.toarray() for part in rows])
