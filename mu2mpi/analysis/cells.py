"""Runs grouped by any of their settings: some down, some across, one cell for all seeds."""

import csv
import importlib.resources
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from mu2mpi.analysis.settings import (
    POOLED,
    PRIVACY,
    SHARE,
    Key,
    by_settings,
    canonical,
    is_settled,
    own_settings,
    privacy_of,
    settings_of,
    sort_key,
    varying,
    without_repeats,
)
from mu2mpi.config.experiment import Experiment
from mu2mpi.config.options import option_fields, own_options
from mu2mpi.errors import InputError
from mu2mpi.results.collection import names_of
from mu2mpi.results.reader import Summary
from mu2mpi.results.schema import SCORES
from mu2mpi.suggestions import or_else

VALUES = ("test_loss", "test_accuracy")
"""What the paper's tables measure."""

TOLD = (*PRIVACY, "delta", "budgets")
"""Settings that are always told of rows, as who reads two of them asks which is the better."""

PLACES = (*option_fields(), "ranks", SHARE)
"""What may be a row or a column: the settings, and the number of ranks, which changes times alone."""


@dataclass(frozen=True)
class Layout:
    """Which settings stand where, and which measurements of `Summary.row` are shown; empty: what suits runs.

    Raises an InputError if a setting does not exist or is named twice.
    """

    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    values: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.places:
            if name not in PLACES:
                raise InputError(f"there is no setting {name!r}{or_else(name, PLACES, 'settings')}")
            if self.places.count(name) > 1:
                raise InputError(f"{name} cannot stand in two places of a table")

    @property
    def places(self) -> tuple[str, ...]:
        """All settings that are rows or columns."""
        return (*self.rows, *self.columns)

    def completed(self, runs: Sequence[Summary], tell: Sequence[str]) -> "Layout":
        """Return the layout with what it lacks for these runs, which differ in `tell`; T stands beside M."""
        layout = replace(usual_places(self, runs, tell), values=self.values or usual_values(runs))
        pairs = {(run.experiment.machines, run.experiment.rounds) for run in runs}
        is_settled = len({machines for machines, _ in pairs}) == len(pairs)
        if "rounds" in layout.places or not (is_settled or "rounds" in tell):
            return layout
        rows, columns = (
            tuple(n for name in part for n in (name, *["rounds"] * (name == "machines")))
            for part in (layout.rows, layout.columns)
        )
        return replace(layout, rows=rows, columns=columns)


class Estimate(NamedTuple):
    """Mean and sample standard deviation over seeds; of one run the deviation is NaN, of none both."""

    mean: float
    deviation: float


@dataclass(frozen=True)
class Cell:
    """The runs of one cell, perhaps none: their number, and their measurements and the paper's by name.

    `settings` are those that follow from where the cell stands, and `diameters` those of the balls, also
    where a preset chose them.
    """

    seeds: int
    values: dict[str, Estimate]
    paper: dict[str, float]
    settings: dict[str, Any] = field(default_factory=dict)
    diameters: frozenset[float] = frozenset()


@dataclass(frozen=True)
class Section:
    """Runs that differ in the settings of rows and columns, and the seed, alone; all share `settings`.

    Each combination of row and column has a cell. Settings that `follow` differ with that place of the
    layout alone, as those that only one method has.
    """

    layout: Layout
    settings: dict[str, Any]
    defaults: dict[str, Any]
    follow: dict[str, str]
    rows: list[Key]
    columns: list[Key]
    cells: dict[tuple[Key, Key], Cell]

    @property
    def seeds(self) -> set[int]:
        """How many runs cells have that have any."""
        return {cell.seeds for cell in self.cells.values() if cell.seeds}


def build_sections(runs: Iterable[Summary], layout: Layout) -> tuple[list[Section], list[str]]:
    """Group runs into sections, one for each set of shared settings; note what the reader should know.

    Runs are averaged only if they differ in the seed alone (or in what changes nothing in the model). Any
    other difference that is neither row nor column makes a section of its own, but for what a preset or the
    server chose, or goes with the method; or rows, where sections would have one row each and no rows are
    named. Raises an InputError if there are no runs, or none has one of the values of the layout.
    """
    kept, notes = without_repeats(runs, *({"ranks"} & {*layout.places}))
    if not kept:
        raise InputError("there are no results to make a table of")
    owns = [own_settings(run) for run in kept]
    tell = varying(kept)
    full = layout.completed(kept, tell)
    check_values(kept, full.values)
    apart = [name for name in tell if name not in full.places]
    follow = _following(apart, full, owns)
    groups = _split(kept, owns, full, follow, tell)
    columns = {tuple(by_settings(members, full.columns)) for members in groups.values()}
    are_rows = all(len(by_settings(members, full.rows)) == 1 for members in groups.values())
    if not layout.rows and len(groups) > 1 == len(columns) and are_rows:
        added, more = _as_rows([name for name in apart if name not in follow], owns)
        if len(added) <= 2:
            full, follow = replace(full, rows=(*full.rows, *added)), follow | more
            groups = _split(kept, owns, full, follow, tell)
    order = sorted(groups, key=lambda key: [(name, sort_key((value,))) for name, value in key])
    sections = [_section(dict(key), groups[key], full, follow) for key in order]
    return sections, [*notes, *versions_note(kept)]


def versions_note(runs: Sequence[Summary]) -> list[str]:
    """Return a note where files were made by several versions of the package."""
    versions = sorted({run.version for run in runs if run.version})
    several = len(versions) > 1
    return [f"these results were made by versions {names_of(versions)} of mu2mpi"] if several else []


def _following(apart: Sequence[str], layout: Layout, rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Return the settings that need no sections, with the place of the layout that they follow from."""
    steps = ("mechanism", "diameter", "normalize", "norm_bound", "l2", "clip_norm", "eta_scale")
    of_methods = {*own_options("method"), *steps}
    given = ["method", *(name for name in apart if name not in of_methods)]
    own = [n for n in apart if n in of_methods and is_settled(n, given, rows)]
    found = dict.fromkeys(own, "method") if "method" in layout.places else {}
    return found | ({"colluders": SHARE} if {SHARE, "machines"} <= {*layout.places} else {})


def _as_rows(apart: Sequence[str], rows: Sequence[dict[str, Any]]) -> tuple[list[str], dict[str, str]]:
    """Return the settings that tell sections apart without those that follow from another, and these."""
    follow: dict[str, str] = {}
    for name in apart:
        earlier = [other for other in apart[: apart.index(name)] if other not in follow]
        if others := [other for other in earlier if name not in TOLD and is_settled(name, [other], rows)]:
            follow[name] = others[0]
    return [name for name in apart if name not in follow], follow


def _split(
    runs: Sequence[Summary],
    rows: Sequence[dict[str, Any]],
    layout: Layout,
    follow: Mapping[str, str],
    tell: Sequence[str],
) -> dict[tuple[tuple[str, Any], ...], list[Summary]]:
    """Return the runs of each section by what they share: what tells sections apart, or never differs."""
    left_out = {*layout.places, *POOLED, *follow}
    names = [n for n in rows[0] if n not in left_out and (n in tell or len({row[n] for row in rows}) == 1)]
    if "epsilon" in layout.places and "delta" not in left_out:
        # Where some runs have an epsilon, the reader is told at which delta, if that is the same of all.
        deltas = {row["delta"] for row in rows} - {None}
        if len(deltas) == 1:
            names, (delta,) = [*names, *["delta"] * ("delta" not in names)], deltas
            rows = [{**row, "delta": delta} for row in rows]
    groups: dict[tuple[tuple[str, Any], ...], list[Summary]] = {}
    for run, row in zip(runs, rows, strict=True):
        shared = tuple((name, row[name]) for name in names if row[name] is not None)
        groups.setdefault(shared, []).append(run)
    return groups


def _section(
    settings: dict[str, Any], runs: Sequence[Summary], layout: Layout, follow: dict[str, str]
) -> Section:
    members, cut = by_settings(runs, layout.places), len(layout.rows)
    rows = sorted({key[:cut] for key in members}, key=sort_key)
    columns = sorted({key[cut:] for key in members}, key=sort_key)
    cells = {}
    for row, column in product(rows, columns):
        there = members.get(row + column, [])
        values = {name: estimate([run.row.get(name, math.nan) for run in there]) for name in layout.values}
        own = own_settings(there[0]) if there else {}
        others = {n: settings_of(there[0])[n] if n == "colluders" else own[n] for n in follow if there}
        if there and there[0].experiment.epsilon is not None and "rho" not in layout.places:
            others["rho"] = there[0].experiment.rho
        ran = _what_ran(settings | others | dict(zip(layout.places, row + column, strict=True)))
        paper = {} if follow and not there else _paper().get(ran, {})
        diameters = frozenset(run.experiment.diameter for run in there)
        cells[row, column] = Cell(len(there), values, paper, others, diameters)
    return Section(layout, settings, runs[0].experiment.defaults, follow, rows, columns, cells)


def usual_places(layout: Layout, runs: Sequence[Summary], tell: Sequence[str]) -> Layout:
    """Return a layout with rows and columns: those of the paper, or what differs where these do not."""
    privacy, sizes = privacy_of(runs), ["machines"]
    if not layout.columns:
        if all(settings_of(run)["samples"] is not None for run in runs):
            sizes.append("samples")
        if len(privacy) == 1 and {"method", "server", *layout.rows} & {*tell}:
            # Something else differs that can stand down.
            sizes += privacy
        usual = [name for name in ("machines", *sizes, *privacy, "server") if name not in layout.rows]
        across = next((name for name in usual if name in tell and name in sizes), usual[0])
        layout = replace(layout, columns=(across,))
    if not layout.rows:
        methods = len({settings_of(run)["method"] for run in runs})
        colluders = SHARE if len({run.experiment.machines for run in runs}) > 1 else "colluders"
        usual = [*["method"] * (methods > 1), "server", *[colluders] * ("colluders" in tell), *privacy]
        layout = replace(layout, rows=tuple(name for name in usual if name not in layout.columns))
    return layout


def usual_values(runs: Iterable[Summary]) -> tuple[str, ...]:
    """Return the loss and the score of runs: accuracy, R^2, or both where they learn classes and numbers."""
    learned = {run.labels for run in runs}
    return ("test_loss", *(score for labels, score in SCORES.items() if labels in learned))


def check_values(runs: Iterable[Summary], values: Iterable[str]) -> None:
    """Raise an InputError if no run has one of these measurements."""
    numbers = (name for run in runs for name, value in run.row.items() if isinstance(value, int | float))
    known = [name for name in dict.fromkeys(numbers) if name not in PLACES]
    for name in values:
        if name not in known:
            raise InputError(f"no run has a value {name!r}{or_else(name, known, 'values')}")


def estimate(values: Sequence[float]) -> Estimate:
    """Return mean and sample standard deviation."""
    if not values:
        return Estimate(math.nan, math.nan)
    # Rounding would make the mean of equal numbers differ from them.
    mean = values[0] if len(set(values)) == 1 else np.mean(values)
    deviation = 0.0 if len(set(values)) == 1 else np.std(values, ddof=1)
    return Estimate(float(mean), float(deviation) if len(values) > 1 else math.nan)


def _what_ran(settings: Mapping[str, Any]) -> frozenset[tuple[str, Any]]:
    """Return what the runs of a cell have in common, by which the paper's values are found."""
    left_out = (*POOLED, "delta", "ranks", SHARE)
    return frozenset((n, v) for n, v in settings.items() if v is not None and n not in left_out)


@cache
def _paper() -> dict[frozenset[tuple[str, Any]], dict[str, float]]:
    """Return loss and accuracy of the paper's two tables."""
    text = importlib.resources.files("mu2mpi.analysis").joinpath("paper_tables.csv").read_text("utf-8")
    found = {}
    for line in csv.DictReader(text.splitlines()):
        values = {name: float(line.pop(name.removeprefix("test_"))) for name in VALUES}
        experiment = Experiment.make({"data": "mnist", "diameter": 0.1, **line})
        found[_what_ran(canonical(experiment))] = values
    return found
