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

from mu2mpi.analysis.setting_labels import (
    POOLED,
    PRIVACY,
    SHARE,
    Key,
    by_settings,
    is_settled,
    privacy_of,
    sort_key,
    varying,
    without_repeats,
)
from mu2mpi.config.experiment import Experiment
from mu2mpi.config.experiment_options import option_fields, own_options
from mu2mpi.core.errors import InputError
from mu2mpi.core.suggestions import or_else
from mu2mpi.results.reader import Summary, canonical
from mu2mpi.results.records import SCORES
from mu2mpi.results.result_files import names_of

VALUES = ("test_loss", "test_accuracy")  # What the paper's tables measure
# Settings that are always told of rows, as who reads two of them asks which is the better
TOLD = (*PRIVACY, "delta", "budgets")
# Settings that one method may have and another not, beside the options of methods
STEPS = ("mechanism", "diameter", "normalize", "norm_bound", "l2", "clip_norm", "eta_scale")
# What may be a row or a column: the settings, and the number of ranks, which changes times alone
PLACES = (*option_fields(), "ranks", SHARE)


@dataclass(frozen=True)
class Layout:
    """Which settings stand where, and which measurements of `Summary.row` are shown; empty: what suits."""

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
        """Return the layout with the paper's rows and columns, or others in which runs differ: `tell`."""
        rows, columns, privacy = self.rows, self.columns, privacy_of(runs)
        pairs = {(run.experiment.machines, run.experiment.rounds) for run in runs}
        machines = {machines for machines, _ in pairs}
        if not columns:
            sizes = ["machines"]
            if all(run.settings["samples"] is not None for run in runs):
                sizes.append("samples")
            if len(privacy) == 1 and {"method", "server", *rows} & {*tell}:
                # Something else differs that can stand down.
                sizes += privacy
            usual = [name for name in (*sizes, *privacy, "server") if name not in rows]
            columns = (next((name for name in usual if name in tell and name in sizes), usual[0]),)
        if not rows:
            methods = {run.settings["method"] for run in runs}
            colluders = SHARE if len(machines) > 1 else "colluders"
            usual = ["method"] * (len(methods) > 1) + ["server"] + [colluders] * ("colluders" in tell)
            rows = tuple(name for name in (*usual, *privacy) if name not in columns)
        if "rounds" not in (*rows, *columns) and ("rounds" in tell or len(machines) == len(pairs)):
            rows, columns = (
                tuple(n for name in part for n in (name, *["rounds"] * (name == "machines")))
                for part in (rows, columns)
            )
        return Layout(rows, columns, self.values or usual_values(runs))


class Estimate(NamedTuple):
    """Mean and sample standard deviation over seeds; of one run the deviation is NaN, of none both."""

    mean: float
    deviation: float


@dataclass(frozen=True)
class Cell:
    """The runs of one cell, perhaps none: their number, and their measurements and the paper's by name."""

    seeds: int
    values: dict[str, Estimate]
    paper: dict[str, float]
    settings: dict[str, Any]  # those that follow from where the cell stands
    diameters: frozenset[float]  # of the balls, also where a preset chose them


@dataclass(frozen=True)
class Section:
    """Runs that differ in the settings of rows and columns, and the seed, alone; all share `settings`."""

    layout: Layout
    settings: dict[str, Any]
    defaults: dict[str, Any]
    follow: dict[str, str]  # settings that differ with a place of the layout alone, and that place
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
    other difference makes a section, or a row where sections would have one row each and none are named.
    """
    kept, notes = without_repeats(runs, *({"ranks"} & {*layout.places}))
    owns, tell = [run.own_settings for run in kept], varying(kept)
    full = layout.completed(kept, tell)
    check_values(kept, full.values)
    apart = [name for name in tell if name not in full.places]
    of_methods = {*own_options("method"), *STEPS}
    given = ["method", *(name for name in apart if name not in of_methods)]
    own = [name for name in apart if name in of_methods and is_settled(name, given, owns)]
    # Settings that need no sections, with the place of the layout that they follow from.
    follow = dict.fromkeys(own, "method") if "method" in full.places else {}
    follow |= {"colluders": SHARE} if {SHARE, "machines"} <= {*full.places} else {}

    def split() -> dict[Key, list[Summary]]:
        """Return the runs of each section by what they share: what tells sections apart, or never differs."""
        left_out = {*full.places, *POOLED, *follow}
        there = {name: {row[name] for row in owns} for name in owns[0] if name not in left_out}
        names, delta = [n for n, values in there.items() if n in tell or len(values) == 1], None
        # Where some runs have an epsilon, the reader is told at which delta, if that is the same of all.
        if "epsilon" in full.places and len(deltas := there.get("delta", set()) - {None}) == 1:
            names, (delta,) = list(dict.fromkeys([*names, "delta"])), deltas
        groups: dict[Key, list[Summary]] = {}
        for run, row in zip(kept, owns, strict=True):
            told = row if delta is None else {**row, "delta": delta}
            shared = tuple((name, told[name]) for name in names if told[name] is not None)
            groups.setdefault(shared, []).append(run)
        return groups

    groups = split()
    columns = {tuple(by_settings(members, full.columns)) for members in groups.values()}
    are_rows = all(len(by_settings(members, full.rows)) == 1 for members in groups.values())
    if not layout.rows and len(groups) > 1 == len(columns) and are_rows:
        added, more = list[str](), dict[str, str]()
        for name in (name for name in apart if name not in follow):
            causes = [other for other in added if name not in TOLD and is_settled(name, [other], owns)]
            if causes:
                more[name] = causes[0]
            else:
                added.append(name)
        if len(added) <= 2:
            full, follow = replace(full, rows=(*full.rows, *added)), follow | more
            groups = split()
    order = sorted(groups, key=lambda key: [(name, sort_key((value,))) for name, value in key])
    sections = [_section(dict(key), groups[key], full, follow) for key in order]
    return sections, [*notes, *versions_note(kept)]


def versions_note(runs: Sequence[Summary]) -> list[str]:
    """Return a note where files were made by several versions of the package."""
    versions = sorted({run.version for run in runs if run.version})
    return [f"these results were made by versions {names_of(versions)} of mu2mpi"] if versions[1:] else []


def _section(
    settings: dict[str, Any], runs: Sequence[Summary], layout: Layout, follow: dict[str, str]
) -> Section:
    members, cut, cells = by_settings(runs, layout.places), len(layout.rows), {}
    rows = sorted({key[:cut] for key in members}, key=sort_key)
    columns = sorted({key[cut:] for key in members}, key=sort_key)
    for row, column in product(rows, columns):
        there, others = members.get(row + column, []), dict[str, Any]()
        if there:
            one, own = there[0].settings, there[0].own_settings
            others = {name: one[name] if name == "colluders" else own[name] for name in follow}
            if one["epsilon"] is not None and "rho" not in layout.places:
                others["rho"] = one["rho"]
        ran = _what_ran(settings | others | dict(zip(layout.places, row + column, strict=True)))
        cells[row, column] = Cell(
            seeds=len(there),
            values={name: estimate([run.row.get(name, math.nan) for run in there]) for name in layout.values},
            paper={} if follow and not there else _paper().get(ran, {}),
            settings=others,
            diameters=frozenset(run.experiment.diameter for run in there),
        )
    return Section(layout, settings, runs[0].experiment.defaults, follow, rows, columns, cells)


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
    is_one = len(set(values)) == 1
    mean, deviation = (values[0], 0.0) if is_one else (np.mean(values), np.std(values, ddof=1))
    return Estimate(float(mean), float(deviation) if len(values) > 1 else math.nan)


def _what_ran(settings: Mapping[str, Any]) -> frozenset[tuple[str, Any]]:
    """Return what the runs of a cell have in common, by which the paper's values are found."""
    left_out = (*POOLED, "delta", "ranks", SHARE)
    return frozenset((n, v) for n, v in settings.items() if v is not None and n not in left_out)


@cache
def _paper() -> dict[frozenset[tuple[str, Any]], dict[str, float]]:
    text = importlib.resources.files("mu2mpi.analysis").joinpath("paper_tables.csv").read_text("utf-8")
    found = {}
    for line in csv.DictReader(text.splitlines()):
        values = {name: float(line.pop(name.removeprefix("test_"))) for name in VALUES}
        experiment = Experiment.make({"data": "mnist", "diameter": 0.1, **line})
        found[_what_ran(canonical(experiment))] = values
    return found
