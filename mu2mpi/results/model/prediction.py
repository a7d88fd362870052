"""What a model makes of new samples: columns of its schema, features as stored, or a file of either."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.core.errors import InputError
from mu2mpi.data.formats.base import OWNERS, USUAL, columns_of, find_name, open_file
from mu2mpi.data.schema import Encoded, Schema
from mu2mpi.data.source import FEATURE_SLACK, row_blocks
from mu2mpi.data.telling import listed, telling
from mu2mpi.losses.model.linear import all_margins
from mu2mpi.losses.model.scaling import Scaling
from mu2mpi.results.model.coefficients import task_of_result
from mu2mpi.results.schema import StoredResult

Array = NDArray[np.float64]

AT_ONCE = 1 << 22  # features that are scaled in one go
HERE = Path("X")  # What messages call samples that come from no file


def margins_of(result: StoredResult, given: Any, public: bool = True) -> Array:
    """Return the margins of new samples, shape (n, rows), as `Result.predict` takes them.

    Unless data are `public`, messages name no row and no value of a file.
    """
    from_file = isinstance(given, str | Path)
    scaling = task_of_result(result).scaling
    with telling(public or not from_file):
        if (schema := result.schema) is not None:
            features = _encoded(schema, given)
        else:
            stored = _stored(result, Path(given)) if from_file else np.asarray(given)
            features = _checked(result, stored, scaling, str(given) if from_file else str(HERE))
    blocks = row_blocks(len(features), max(1, AT_ONCE // result.x.shape[1]))
    margins = [all_margins(result.x, scaling.samples(features[rows], result.scale)) for rows in blocks]
    return np.concatenate([np.empty((0, len(result.x))), *margins])


def predictions(result: StoredResult, margins: Array) -> NDArray[Any]:
    """Return the class of each sample, by its name if it has one, or a number in the label's own units."""
    problem = task_of_result(result).problem
    if result.label_range is not None:
        low, high = result.label_range
        return (low + high) / 2 + (high - low) / 2 * problem.predictions(margins)
    best = problem.best(margins)
    return best if result.class_names is None else np.array(result.class_names)[best]


def class_scores(result: StoredResult, margins: Array) -> Array:
    """Return probabilities or other scores, shape (n, K), the largest for the class that is predicted."""
    if result.label_range is not None:
        raise InputError("this model predicts numbers, and has no scores of classes; ask it to predict")
    return task_of_result(result).problem.scores(margins)


def _encoded(schema: Schema, given: Any) -> NDArray[np.float32]:
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


def _check_there(path: Path, wanted: Iterable[str], there: list[str]) -> None:
    if gone := [name for name in wanted if name not in there]:
        raise InputError(f"{path} has no column {listed(gone)}, which the model was trained on")


def _stored(result: StoredResult, path: Path) -> NDArray[Any]:
    """Return the features of a file as a run reads them; it need not have labels."""
    width, label = result.x.shape[1] - 1, result.experiment.labels
    file = open_file(path.expanduser(), width)
    if not (file.has_header or file.is_table):
        chosen = [find_name(path, file.names, result.experiment.features, "features")]
    elif result.feature_names:
        chosen = list(result.feature_names)
        _check_there(path, chosen, file.names)
    elif len(chosen := [name for name in file.names if name != OWNERS]) != width:
        # One may be the label, as in training.
        label = label or next((name for name in USUAL["labels"] if name in chosen), None)
        chosen = [name for name in chosen if name != label]
    arrays = file.arrays(dict.fromkeys(chosen, "numbers")).values()
    rows = [array[np.arange(array.shape[0])] for array in arrays]
    return np.column_stack([part if isinstance(part, np.ndarray) else part.toarray() for part in rows])


def _checked(result: StoredResult, stored: NDArray[Any], scaling: Scaling, where: str) -> NDArray[Any]:
    """Return features as a matrix, of which each row can be scaled as those were that the model has seen."""
    width = result.x.shape[1] - 1
    features = np.atleast_2d(stored)
    if len(features) == 0:
        raise InputError(f"{where} is empty: it has no rows")
    features = features.reshape(len(features), -1)
    if features.shape[1] != width:
        raise InputError(f"{where} has {features.shape[1]} features a sample, and the model {width}")
    if features.dtype.kind not in "biuf":
        raise InputError(f"{where} has features that are no numbers, of the type {features.dtype}")
    limit = np.inf if scaling.unit else (1 + FEATURE_SLACK) / result.scale
    largest = np.abs(features).max(initial=0)
    if not (np.isfinite(largest) and largest <= limit):
        raise InputError(
            f"{where} has a feature that is not finite, or beyond the {1 / result.scale:g} that the model "
            "was trained with; scale features as those were"
        )
    return features
