"""Runs grouped by any of their settings: some down, some across, one cell for all seeds."""

import csv
import importlib.resources
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache
from itertools import product
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from mu2mpi.analysis.layouts import SHARE, Layout, check_values
from mu2mpi.analysis.settings import POOLED, canonical, is_settled, own_settings, settings_of, varying_among
from mu2mpi.analysis.words import PRIVACY
from mu2mpi.config.experiment import Experiment
from mu2mpi.config.identity import sent
from mu2mpi.config.options import method_options
from mu2mpi.errors import InputError
from mu2mpi.results.collection import names_of
from mu2mpi.results.reader import Summary

VALUES = ("test_loss", "test_accuracy")
"""What the paper's tables measure."""

TOLD = (*PRIVACY, "delta", "budgets")
"""Settings that are always told of rows, as who reads two of them asks which is the better."""

Key = tuple[Any, ...]


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
    tell = varying_among(owns)
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
    order = sorted(groups, key=lambda key: [(name, _order(value)) for name, value in key])
    sections = [_section(dict(key), groups[key], full, follow) for key in order]
    return sections, [*notes, *versions_note(kept)]


def versions_note(runs: Sequence[Summary]) -> list[str]:
    """Return a note where files were made by several versions of the package."""
    versions = sorted({run.version for run in runs if run.version})
    if len(versions) < 2:
        return []
    return [f"these results were made by versions {names_of(versions)} of mu2mpi"]


def _following(apart: Sequence[str], layout: Layout, rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Return the settings that need no sections, with the place of the layout that they follow from."""
    steps = ("mechanism", "diameter", "normalize", "norm_bound", "l2", "clip_norm", "eta_scale")
    of_methods = {*method_options(), *steps}
    given = ["method", *(name for name in apart if name not in of_methods)]
    own = [n for n in apart if n in of_methods and is_settled(n, given, rows)]
    found = dict.fromkeys(own, "method") if "method" in layout.places else {}
    return found | ({"colluders": SHARE} if {SHARE, "machines"} <= {*layout.places} else {})


def _as_rows(apart: Sequence[str], rows: Sequence[dict[str, Any]]) -> tuple[list[str], dict[str, str]]:
    """Return the settings that tell sections apart without those that follow from another, and these."""
    added: list[str] = []
    follow: dict[str, str] = {}
    for name in apart:
        followed = (other for other in added if name not in TOLD and is_settled(name, [other], rows))
        first = next(followed, None)
        if first is None:
            added.append(name)
        else:
            follow[name] = first
    return added, follow


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


def without_repeats(runs: Iterable[Summary], *columns: str) -> tuple[list[Summary], list[str]]:
    """Return each run once, and a note for each repeat; one that differs in one of these columns is none."""
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
    """Group runs by the values of settings (or `ranks`), in the order in which tables show them.

    Where some privacy was set by rho, the rho that follows from an epsilon is none.
    """

    def row_of(run: Summary) -> dict[str, Any]:
        colluders, machines = run.experiment.colluders, run.experiment.machines or 1
        share = None if colluders is None else Fraction(colluders, machines)
        row = {**run.row, **settings_of(run), SHARE: share}
        follows = {*PRIVACY} <= {*names} and row["epsilon"] is not None
        return row | ({"rho": None} if follows else {})

    return by_rows(runs, names, row_of)


def by_rows(
    runs: Iterable[Summary], names: Sequence[str], row_of: Callable[[Summary], Mapping[str, Any]]
) -> dict[Key, list[Summary]]:
    """Group runs by what their rows have under these names, in the order in which tables show them."""
    groups: dict[Key, list[Summary]] = {}
    for run in runs:
        groups.setdefault(tuple(map(row_of(run).get, names)), []).append(run)
    return {key: groups[key] for key in sorted(groups, key=sort_key)}


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


def estimate(values: Sequence[float]) -> Estimate:
    """Return mean and sample standard deviation."""
    if not values:
        return Estimate(math.nan, math.nan)
    # Rounding would make the mean of equal numbers differ from them.
    mean = values[0] if len(set(values)) == 1 else np.mean(values)
    deviation = 0.0 if len(set(values)) == 1 else np.std(values, ddof=1)
    return Estimate(float(mean), float(deviation) if len(values) > 1 else math.nan)


def sort_key(key: Key) -> list[tuple[int, Any]]:
    """Return what sorts keys as tables show them: unset first, numbers in order, the trusted server last."""
    return [_order(value) for value in key]


def _order(value: Any) -> tuple[int, Any]:
    if value is None:
        return 0, 0
    return (1, value) if isinstance(value, Real) else (2, (value == "trusted", value != "untrusted", value))


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
