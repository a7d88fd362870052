"""A model in the columns' own units, and the standard errors that noise alone would give: both are public."""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mu2mpi.data.schema import Column, Schema
from mu2mpi.federation.schedule import Schedule
from mu2mpi.privacy.correlation import Filter
from mu2mpi.problem.base import Problem
from mu2mpi.results.repetition import schedule_of_result
from mu2mpi.results.schema import Result

Floats = NDArray[np.float64]

PROBES = 2048
"""Coordinates in which the noise of the output is measured."""

OF_NOISE = (
    "Standard errors are those of the noise alone: of a model that learned nothing. Gradients take some of "
    "the noise back; which samples were drawn comes on top."
)

SCALED = (
    "Features of each sample were then scaled by a factor of its own, so that no values in the columns' own "
    "units are the same for all."
)


@dataclass(frozen=True, eq=False)
class Coefficients:
    """What a linear model adds up, term by term.

    Attributes
    ----------
    rows, terms : tuple of str
        What each row of the model speaks for; the features, and the intercept at the end.
    values : ndarray of float64, shape (rows, terms)
        Coefficients.
    errors : ndarray of float64, shape (terms,)
        The standard deviation that the noise alone gives those of each term, the same in all rows.
    notes : tuple of str
        What the values are, and what the errors are not.
    """

    rows: tuple[str, ...]
    terms: tuple[str, ...]
    values: Floats
    errors: Floats
    notes: tuple[str, ...]


def coefficients_of(result: Result, scaled: bool = False) -> Coefficients:
    """Return coefficients in the columns' own units, or if `scaled` those of features in [-1, 1]."""
    schedule = schedule_of_result(result)
    by_sample = schedule.scaling.unit or schedule.scaling.bound is not None
    features = result.x.shape[1] - 1
    terms = list(result.feature_names or map(str, range(features)))
    middles, halves = np.zeros(features), np.ones(features)
    if not (scaled or by_sample):
        if (schema := result.schema) is None:
            halves /= result.scale
        else:
            terms, middles, halves = _own_units(schema)
    # The margin is linear in columns v: sum of w (v - middle) / half, and the bias.
    change = np.zeros((features + 1, features + 1))
    np.fill_diagonal(change, [*1 / halves, schedule.scaling.bias])
    change[:-1, -1] = -middles / halves
    gain, start = 1.0, 0.0
    if result.label_range is not None and not scaled:
        gain, start = schedule.problem.own_units(*result.label_range)
    values = gain * (result.x @ change)
    values[:, -1] += start
    errors = gain * noise_of_output(schedule) * np.sqrt(np.sum(change**2, axis=0))
    notes = (_meaning(result, schedule.problem, scaled or by_sample), *[SCALED] * by_sample, OF_NOISE)
    return Coefficients(result.row_names, (*terms, "(intercept)"), values, errors, notes)


def noise_of_output(schedule: Schedule) -> float:
    """Return the standard deviation that each coordinate of the output has from noise alone.

    It is measured: the method's own steps are taken with noise alone, in `PROBES` coordinates and a ball that
    is scaled with the root of their number, an approximation for models of a few parameters.
    """
    mechanism, rounds = schedule.mechanism, schedule.rounds
    radius = schedule.radius * math.sqrt(PROBES / schedule.d)
    iterates = schedule.make_iterates(replace(schedule, rows=1, features=PROBES, radius=radius))
    draw, draws = np.random.default_rng(0), schedule.variances
    noise = Filter(mechanism.correlation, PROBES) if mechanism.correlation is not None else None
    deviation = None if schedule.members is None else schedule.members.fresh_deviation
    for t in range(1, rounds):
        iterates.visit(t)
        # Over many rounds, signs are as good as normal numbers, and cheaper.
        signs: Floats = np.asarray(2.0 * draw.integers(0, 2, PROBES) - 1)
        if deviation is not None:
            drawn = deviation * signs
        elif noise is None:
            drawn = math.sqrt(draws) * (mechanism.sigma_of(t) * signs)
        else:
            drawn = math.sqrt(draws) * (mechanism.sigma * noise.add(t, signs))
        units = np.rint(drawn / mechanism.resolution)
        iterates.step(t, units[np.newaxis].astype(np.int64))
    return float(np.std(iterates.visit(rounds)))


def _own_units(schema: Schema) -> tuple[list[str], Floats, Floats]:
    """Return the names of features, the value of a column that is 0 in the model, and how far off 1 is."""
    terms, middles, halves = [], [], []
    for name, column in schema.features.items():
        middle, half = _units(column)
        names = column.feature_names(name)
        terms += [name + _step(column)] if len(names) == 1 else names
        middles += [middle] * len(names)
        halves += [half] * len(names)
    return terms, np.array(middles), np.array(halves)


def _units(column: Column) -> tuple[float, float]:
    if column.range is not None:
        low, high = column.range
        return low / 2 + high / 2, high / 2 - low / 2
    if column.type == "categorical":
        return 0.0, 1.0
    steps = len(column.categories or (False, True)) - 1
    return steps / 2, steps / 2


def _step(column: Column) -> str:
    """Say what a unit of a column is that holds no numbers."""
    if column.type == "boolean":
        return f" = {'true' if column.true is None else column.true}"
    return " (a step)" if column.type == "ordinal" else ""


def _meaning(result: Result, problem: Problem, scaled: bool) -> str:
    each = "a feature scaled to [-1, 1]" if scaled else "its column, in the column's own units,"
    of = "" if result.label_range is not None else " of the class"
    return f"Each value is what a unit of {each} adds to {problem.margin}{of}."
