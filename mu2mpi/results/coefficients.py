"""What is made of a model: features of new samples for it, and its coefficients in the columns' own units."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.data.formats.format import OWNERS, USUAL, columns_of, find_name, open_file
from mu2mpi.data.redaction import listed
from mu2mpi.data.source import FEATURE_SLACK
from mu2mpi.data.table_schema import Encoded, Schema
from mu2mpi.federation.iterates import Iterates
from mu2mpi.federation.run_constants import RunConstants
from mu2mpi.privacy.noise.correlation import Filter

Floats = NDArray[np.float64]

HERE = Path("X")  # What messages call samples that come from no file
PROBES = 2048  # Coordinates in which the noise of the output is measured
OF_NOISE = (
    "Standard errors are those of the noise alone: of a model that learned nothing. Gradients take some of "
    "the noise back; which samples were drawn comes on top."
)
SCALED = (
    "Features of each sample were then scaled by a factor of its own, so that no values in the columns' own "
    "units are the same for all."
)


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
        raise InputError("this model takes named columns: a data frame, a mapping by name, or a file")
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
        raise InputError(f"{where} has a feature that is not finite or beyond the {1 / scale:g} of training")
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


@dataclass(frozen=True, eq=False)
class Coefficients:
    """What a linear model adds up, term by term.

    Attributes
    ----------
    rows, terms : tuple of str
        What each row of the model speaks for; the features, and the intercept at the end.
    values, errors : ndarray of float64, shape (rows, terms) and (terms,)
        Coefficients, and their standard deviation by noise alone, the same in all rows.
    notes : tuple of str
        What the values are, and what the errors are not.
    """

    rows: tuple[str, ...]
    terms: tuple[str, ...]
    values: Floats
    errors: Floats
    notes: tuple[str, ...]


class Units(NamedTuple):
    """Names of the features, the value of a column that is 0 in the model, and how far off 1 is."""

    terms: tuple[str, ...]
    middles: Floats
    halves: Floats


def coefficients_of(
    x: Floats,
    rows: tuple[str, ...],
    constants: RunConstants,
    units: Units,
    label_range: tuple[float, float] | None,
    scaled: bool,
) -> Coefficients:
    """Return coefficients of a model in these units; if `scaled`, labels are scaled as features are."""
    scaling, problem = constants.task.scaling, constants.task.problem
    # The margin is linear in columns v: sum of w (v - middle) / half, and the bias.
    change = np.diag([*1 / units.halves, scaling.bias])
    change[:-1, -1] = -units.middles / units.halves
    gain, start = 1.0, 0.0
    if label_range is not None and not scaled:
        gain, start = problem.own_units(*label_range)
    values = gain * (x @ change)
    values[:, -1] += start
    errors = gain * noise_of_output(constants) * np.sqrt(np.sum(change**2, axis=0))
    each = "its column, in the column's own units,"
    if scaled or scaling.is_by_sample:
        each = "a feature scaled to [-1, 1]"
    of = "" if label_range is not None else " of the class"
    meaning = f"Each value is what a unit of {each} adds to {problem.margin}{of}."
    notes = (meaning, *[SCALED] * scaling.is_by_sample, OF_NOISE)
    return Coefficients(rows, (*units.terms, "(intercept)"), values, errors, notes)


def noise_of_output(constants: RunConstants) -> float:
    """Return the standard deviation of the output's coordinates in a run of noise alone with `PROBES`.

    The ball is scaled with the root of their number, an approximation for models of a few parameters.
    """
    mechanism, rounds = constants.mechanism, constants.rounds
    radius = constants.task.radius * math.sqrt(PROBES / constants.task.d)
    iterates = Iterates(constants.with_task(rows=1, features=PROBES, diameter=2 * radius))
    draw, draws = np.random.default_rng(0), constants.task.variances
    noise = Filter(mechanism.correlation, PROBES) if mechanism.correlation is not None else None
    deviation = None if constants.task.per_machine is None else constants.task.per_machine.fresh_deviation
    for t in range(1, rounds):
        iterates.visit(t)
        # Over many rounds, signs are as good as normal numbers, and cheaper.
        signs: Floats = np.asarray(2.0 * draw.integers(0, 2, PROBES) - 1)
        if deviation is not None:
            drawn = deviation * signs
        else:
            own = mechanism.sigma_of(t) * signs if noise is None else mechanism.sigma * noise.add(t, signs)
            drawn = math.sqrt(draws) * own
        units = np.rint(drawn / mechanism.resolution)
        iterates.step(t, units[np.newaxis].astype(np.int64))
    return float(np.std(iterates.visit(rounds)))


def own_units(schema: Schema) -> Units:
    """Return the units of a table's columns."""
    terms, middles, halves = list[str](), list[float](), list[float]()
    for name, column in schema.features.items():
        low, high = column.range or (0, len(column.categories or (False, True)) - 1)
        middle, half = low / 2 + high / 2, high / 2 - low / 2
        if column.type == "categorical":
            middle, half = 0.0, 1.0
        names = column.feature_names(name)
        # What a unit is of a column that holds no numbers.
        steps = {"boolean": f" = {'true' if column.true is None else column.true}", "ordinal": " (a step)"}
        terms += [name + steps.get(column.type, "")] if len(names) == 1 else names
        middles += [middle] * len(names)
        halves += [half] * len(names)
    return Units(tuple(terms), np.array(middles), np.array(halves))
