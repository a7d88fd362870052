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

from mu2mpi.analysis.settings import POOLED, canonical, own_settings, privacy_of, settings_of, varying_among
from mu2mpi.analysis.words import number_text
from mu2mpi.config.experiment import Experiment
from mu2mpi.config.identity import sent
from mu2mpi.config.options import option_fields
from mu2mpi.errors import InputError
from mu2mpi.results.reader import Summary
from mu2mpi.results.schema import SCORES
from mu2mpi.suggestions import or_else

COLUMNS, VALUES = ("machines",), ("test_loss", "test_accuracy")
"""What the paper's tables have across, and measure."""

PLACES = (*option_fields(), "ranks")
"""What may be a row or a column: the settings, and the number of ranks, which changes times alone."""

Key = tuple[Any, ...]


@dataclass(frozen=True)
class Layout:
    """Which settings stand where, and which measurements of `Summary.row` are shown.

    Without any, rows are methods, where these differ, servers, and what privacy was set by; columns are
    numbers of machines, and values loss and score. Raises an InputError if a setting does not exist or is
    named twice.
    """

    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    values: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        named = [*self.rows, *self.columns]
        for name in named:
            if name not in PLACES:
                raise InputError(f"there is no setting {name!r}{or_else(name, PLACES, 'settings')}")
            if named.count(name) > 1:
                raise InputError(f"{name} cannot stand in two places of a table")

    @property
    def places(self) -> tuple[str, ...]:
        """All settings that are rows or columns."""
        return (*self.rows, *self.columns)

    def completed(self, runs: Sequence[Summary], tell: Sequence[str]) -> "Layout":
        """Return the layout with what these runs need: rows, values, and T beside M.

        Rounds that follow from other settings that `tell` runs apart than M are told by these.
        """
        columns = self.columns or COLUMNS
        rows = self.rows or tuple(name for name in usual_rows(runs) if name not in columns)
        layout = replace(self, rows=rows, columns=columns, values=self.values or usual_values(runs))
        pairs = {(run.experiment.machines, run.experiment.rounds) for run in runs}
        is_settled = len({machines for machines, _ in pairs}) == len(pairs)
        if "rounds" in layout.places or not (is_settled or "rounds" in tell):
            return layout
        beside = {"machines": ("machines", "rounds")}
        places = (
            [n for name in part for n in beside.get(name, (name,))] for part in (layout.rows, layout.columns)
        )
        rows, columns = map(tuple, places)
        return replace(layout, rows=rows, columns=columns)


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
        usual = {name: v for name, v in self.defaults.items() if isinstance(v, str) or name == "delta"}
        usual["partition"] = "iid"
        said = {n: v for n, v in self.settings.items() if n == "data" or v != usual.get(n)}
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
    owns = [own_settings(run) for run in kept]
    tell = varying_among(owns)
    layout = layout.completed(kept, tell)
    numbers = (name for run in kept for name, value in run.row.items() if isinstance(value, int | float))
    known = [name for name in dict.fromkeys(numbers) if name not in PLACES]
    for name in layout.values:
        if name not in known:
            raise InputError(f"no run has a value {name!r}{or_else(name, known, 'values')}")
    groups: dict[tuple[tuple[str, Any], ...], list[Summary]] = {}
    for run, own in zip(kept, owns, strict=True):
        shared = tuple((n, v) for n, v in own.items() if v is not None and _is_shared(n, tell, layout, owns))
        groups.setdefault(shared, []).append(run)
    order = sorted(groups, key=lambda key: [(name, _order(value)) for name, value in key])
    return [_section(dict(key), groups[key], layout) for key in order], notes


def _is_shared(name: str, tell: Sequence[str], layout: Layout, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a setting tells sections apart, or is the same in all of them."""
    if name in layout.places or name in POOLED:
        return False
    return name in tell or len({row[name] for row in rows}) == 1


def usual_rows(runs: Sequence[Summary]) -> tuple[str, ...]:
    """Return what stands down in a table: the paper's server and rho, or what these runs have instead."""
    methods = {settings_of(run)["method"] for run in runs}
    return (*["method"] * (len(methods) > 1), "server", *privacy_of(runs))


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
        row = {**run.row, **settings_of(run)}
        groups.setdefault(tuple(map(row.get, names)), []).append(run)
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
    left_out = (*POOLED, "delta", "ranks")
    return frozenset((n, v) for n, v in settings.items() if v is not None and n not in left_out)


@cache
def _paper() -> dict[frozenset[tuple[str, Any]], dict[str, float]]:
    """Return loss and accuracy of the paper's two tables."""
    text = importlib.resources.files("mu2mpi.analysis").joinpath("paper_tables.csv").read_text("utf-8")
    found = {}
    for line in csv.DictReader(text.splitlines()):
        values = {f"test_{name}": float(line.pop(name)) for name in ("loss", "accuracy")}
        experiment = Experiment.make({"data": "mnist", "diameter": 0.1, **line})
        found[_what_ran(canonical(experiment))] = values
    return found
