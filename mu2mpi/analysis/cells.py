"""Runs grouped by any of their settings: some down, some across, one cell for all seeds."""

import csv
import importlib.resources
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from mu2mpi.config.experiment import Experiment
from mu2mpi.config.identity import following, sent
from mu2mpi.config.options import option_fields
from mu2mpi.errors import InputError
from mu2mpi.results.reader import Summary
from mu2mpi.results.schema import SCORES

ROWS, COLUMNS, VALUES = ("server", "rho"), ("machines",), ("test_loss", "test_accuracy")
"""The layout of the paper's tables."""

POOLED = ("seed", "epsilon", "delta", "evaluations")
"""Settings that may differ within a cell: the seed, and what, rho given, changes nothing in the model."""

FOLLOWERS = {"machines": "rounds", "epsilon": "rho"}
"""What goes with a setting that is named, unless it is named itself."""

PLACES = (*option_fields(), "ranks")
"""What may be a row or a column: the settings, and the number of ranks, which changes times alone."""

Key = tuple[Any, ...]


@dataclass(frozen=True)
class Layout:
    """Which settings stand where, and which measurements of `Summary.row` are shown.

    Without any, these are loss and score. Rounds go with machines, as T = n / M by default, and rho with
    epsilon, unless they are named. Raises an InputError if a setting does not exist or is named twice.
    """

    rows: tuple[str, ...] = ROWS
    columns: tuple[str, ...] = COLUMNS
    values: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        named = [*self.rows, *self.columns]
        for name in named:
            if name not in PLACES:
                raise InputError(f"there is no setting {name!r}; the settings are {', '.join(PLACES)}")
            if named.count(name) > 1:
                raise InputError(f"{name} cannot stand in two places of a table")
        if not (self.rows and self.columns):
            raise InputError("a table needs at least one setting as rows, and one as columns")
        follows = {leader: name for leader, name in FOLLOWERS.items() if name not in named}
        for place in ("rows", "columns"):
            names = [each for name in getattr(self, place) for each in (name, follows.get(name)) if each]
            object.__setattr__(self, place, tuple(names))

    @property
    def places(self) -> tuple[str, ...]:
        """All settings that are rows or columns."""
        return (*self.rows, *self.columns)


class Estimate(NamedTuple):
    """Mean and sample standard deviation over seeds; of one run the deviation is NaN, of none both."""

    mean: float
    deviation: float


@dataclass(frozen=True)
class Cell:
    """The runs of one cell: how many there are, perhaps none, and measurements by name, accuracy as a share.

    The paper's measurements, where it has some, are there even if there is no run.
    """

    seeds: int
    values: dict[str, Estimate]
    paper: dict[str, float]


@dataclass(frozen=True)
class Section:
    """Runs that differ in nothing but the settings of rows and columns, and the seed; all share `settings`.

    Rows and columns are values of the layout's settings, in the order of tables, and each combination of
    these has a cell.
    """

    layout: Layout
    settings: dict[str, Any]
    defaults: dict[str, Any]
    rows: list[Key]
    columns: list[Key]
    cells: dict[tuple[Key, Key], Cell]

    @property
    def seeds(self) -> set[int]:
        """How many runs cells have that have any."""
        return {cell.seeds for cell in self.cells.values() if cell.seeds}

    @property
    def heading(self) -> str:
        """The shared settings in words, without names (other than the data's) that are the default."""
        defaults = {name: value for name, value in self.defaults.items() if isinstance(value, str)}
        said = {n: v for n, v in self.settings.items() if n == "data" or v != defaults.get(n)}
        return ", ".join(f"{name} = {number_text(value)}" for name, value in said.items())


def build_sections(runs: Iterable[Summary], layout: Layout) -> tuple[list[Section], list[str]]:
    """Group runs into sections, one for each set of shared settings; note which runs are there twice.

    Runs are averaged only if they differ in the seed alone (or in delta or evaluations, which change
    nothing in the model); any other difference that is neither row nor column, such as another diameter,
    makes a section of its own, but for what a preset or the server chose. Raises an InputError if there are
    no runs, or none has one of the values of the layout.
    """
    kept, notes = without_repeats(runs, *({"ranks"} & {*layout.places}))
    if not kept:
        raise InputError("there are no results to make a table of")
    layout = replace(layout, values=layout.values or usual_values(kept))
    numbers = (name for run in kept for name, value in run.row.items() if isinstance(value, int | float))
    known = [name for name in dict.fromkeys(numbers) if name not in PLACES]
    for name in layout.values:
        if name not in known:
            raise InputError(f"no run has a value {name!r}; the values are {', '.join(known)}")
    apart = (*layout.places, *POOLED)
    groups: dict[tuple[tuple[str, Any], ...], list[Summary]] = {}
    for run in kept:
        follows = following(run.experiment, run.facts).items()
        shared = tuple(s for s in run.experiment.settings().items() if s[0] not in apart and s not in follows)
        groups.setdefault(shared, []).append(run)
    order = sorted(groups, key=lambda key: [(name, _order(value)) for name, value in key])
    return [_section(dict(key), groups[key], layout) for key in order], notes


def usual_values(runs: Iterable[Summary]) -> tuple[str, ...]:
    """Return the loss and the score of runs: accuracy, R^2, or both where they learn classes and numbers."""
    learned = {run.labels for run in runs}
    return ("test_loss", *(score for labels, score in SCORES.items() if labels in learned))


def without_repeats(runs: Iterable[Summary], *columns: str) -> tuple[list[Summary], list[str]]:
    """Return each run once, the first of those that are the same, and a note for each of the others.

    Where the same experiment differs in one of these columns of its row, such as `ranks`, it is another run.
    """
    first: dict[Key, Summary] = {}
    notes = []
    for run in runs:
        trained = run.experiment.seed, sent(run.experiment)
        # Without a seed every run is a new one, and only a copy of its file agrees in all of these.
        copied = () if run.experiment.seed is not None else (run.created, str(run.test_loss))
        measured = tuple(map(run.row.get, columns))
        earlier = first.setdefault((trained, measured, *copied), run)
        if earlier is not run:
            notes.append(f"{run.path} repeats the run of {earlier.path} and is not counted again")
    return list(first.values()), notes


def by_settings(runs: Iterable[Summary], names: Sequence[str]) -> dict[Key, list[Summary]]:
    """Group runs by the values of settings (or `ranks`), in the order in which tables show them."""
    groups: dict[Key, list[Summary]] = {}
    for run in runs:
        groups.setdefault(tuple(map(run.row.get, names)), []).append(run)
    return {key: groups[key] for key in sorted(groups, key=sort_key)}


def _section(settings: dict[str, Any], runs: Sequence[Summary], layout: Layout) -> Section:
    members, cut = by_settings(runs, layout.places), len(layout.rows)
    rows = sorted({key[:cut] for key in members}, key=sort_key)
    columns = sorted({key[cut:] for key in members}, key=sort_key)
    cells = {}
    for row, column in product(rows, columns):
        there = members.get(row + column, [])
        values = {name: estimate([run.row.get(name, math.nan) for run in there]) for name in layout.values}
        ran = _what_ran(settings | dict(zip(layout.places, row + column, strict=True)))
        cells[row, column] = Cell(len(there), values, _paper().get(ran, {}))
    return Section(layout, settings, runs[0].experiment.defaults, rows, columns, cells)


def estimate(values: Sequence[float]) -> Estimate:
    """Return mean and sample standard deviation."""
    if not values:
        return Estimate(math.nan, math.nan)
    if len(set(values)) == 1:
        # Rounding would make the mean of equal numbers differ from them.
        return Estimate(float(values[0]), 0.0 if len(values) > 1 else math.nan)
    return Estimate(float(np.mean(values)), float(np.std(values, ddof=1)))


def sort_key(key: Key) -> list[tuple[int, Any]]:
    """Return what sorts keys as tables show them: unset first, numbers in order, the trusted server last."""
    return [_order(value) for value in key]


def _order(value: Any) -> tuple[int, Any]:
    if value is None:
        return 0, 0
    return (
        (1, value)
        if isinstance(value, int | float)
        else (2, (value == "trusted", value != "untrusted", value))
    )


def _what_ran(settings: Mapping[str, Any]) -> frozenset[tuple[str, Any]]:
    """Return what the runs of a cell have in common, by which the paper's values are found."""
    return frozenset((n, v) for n, v in settings.items() if v is not None and n not in (*POOLED, "ranks"))


@cache
def _paper() -> dict[frozenset[tuple[str, Any]], dict[str, float]]:
    """Return loss and accuracy of the paper's two tables."""
    text = importlib.resources.files("mu2mpi.analysis").joinpath("paper_tables.csv").read_text("utf-8")
    found = {}
    for line in csv.DictReader(text.splitlines()):
        values = {f"test_{name}": float(line.pop(name)) for name in ("loss", "accuracy")}
        experiment = Experiment.make({"data": "mnist", "diameter": 0.1, **line})
        found[_what_ran(experiment.settings())] = values
    return found


def counted(value: object) -> str:
    """Return a setting as `number_text` does, with thousands parted in those that count something."""
    return f"{value:,}" if isinstance(value, int) else number_text(value)


def number_text(value: object) -> str:
    """Return a setting as short as it can be without merging two that differ."""
    if value is None:
        return "unset"
    return f"{value:.0f}" if isinstance(value, float) and value.is_integer() and value < 1e15 else str(value)
