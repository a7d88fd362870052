"""Aggregation of runs over seeds, grouped by settings that are the rows and columns of a table."""

import csv
import importlib.resources
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, product
from typing import Any, NamedTuple

import numpy as np

from mu2mpi.analysis import setting_labels
from mu2mpi.analysis.setting_labels import AVERAGED_SETTINGS, COLLUDERS_SHARE, GroupKey
from mu2mpi.config.experiment import Experiment
from mu2mpi.config.experiment_options import option_fields
from mu2mpi.core.errors import InputError
from mu2mpi.core.suggestions import did_you_mean, suggest_or_list, suggest_setting
from mu2mpi.results.reader import RunSummary, canonical_settings
from mu2mpi.results.records import SCORE_COLUMNS
from mu2mpi.results.result_files import join_names

PAPER_MEASUREMENTS = ("test_loss", "test_accuracy")  # Measurements in the paper's tables
# Possible rows and columns: settings, and the number of ranks (which affects times alone)
TABLE_AXIS_SETTINGS = (*option_fields(), "ranks", COLLUDERS_SHARE)


@dataclass(frozen=True)
class TableLayout:
    """Layout of a table: settings for rows and columns, and measurements; empty ones get defaults."""

    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    values: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.axes:
            if name not in TABLE_AXIS_SETTINGS:
                hint = suggest_setting(name, TABLE_AXIS_SETTINGS)
                raise InputError(f"there is no setting {name!r}{hint}")
            if self.axes.count(name) > 1:
                raise InputError(f"{name} is given twice among the rows and columns. Give it once.")

    @property
    def axes(self) -> tuple[str, ...]:
        """All settings that are rows or columns of the table."""
        return (*self.rows, *self.columns)

    def with_defaults(self, runs: Sequence[RunSummary], varying: Sequence[str]) -> "TableLayout":
        """Return the layout with defaults for empty rows, columns and values, from the settings that vary."""
        rows, columns, privacy = self.rows, self.columns, setting_labels.privacy_settings(runs)
        sizes = {(run.experiment.machines, run.experiment.rounds) for run in runs}
        machines = {machines for machines, _ in sizes}
        if not columns:
            preferred = ["machines"]
            if all(run.settings["samples"] is not None for run in runs):
                preferred.append("samples")
            # Privacy may be a column if another setting that varies is a row.
            if len(privacy) == 1 and {"method", "server", *rows} & {*varying}:
                preferred += privacy
            defaults = [name for name in (*preferred, *privacy, "server") if name not in rows]
            columns = (next((n for n in defaults if n in varying and n in preferred), defaults[0]),)
        if not rows:
            methods = {run.settings["method"] for run in runs}
            colluders = COLLUDERS_SHARE if len(machines) > 1 else "colluders"
            defaults = ["method"] * (len(methods) > 1) + ["server"] + [colluders] * ("colluders" in varying)
            rows = tuple(name for name in (*defaults, *privacy) if name not in columns)
        if "rounds" not in (*rows, *columns) and ("rounds" in varying or len(machines) == len(sizes)):
            axes = [[[name, *["rounds"] * (name == "machines")] for name in axis] for axis in (rows, columns)]
            rows, columns = (tuple(chain.from_iterable(axis)) for axis in axes)
        return TableLayout(rows, columns, self.values or default_measurements(runs))


class MeanAndStd(NamedTuple):
    """Mean over seeds (NaN without runs) and sample standard deviation (NaN for a single run)."""

    mean: float
    std: float


@dataclass(frozen=True)
class SeedAggregate:
    """Statistics over the runs of one table entry; an entry may have no runs."""

    seeds: int  # number of runs
    values: dict[str, MeanAndStd]  # by measurement
    paper_values: dict[str, float]  # the paper's values by measurement, if it has this experiment
    settings: dict[str, Any]  # settings that rows or columns determine
    diameters: frozenset[float]  # of the balls, including those chosen by a preset


@dataclass(frozen=True)
class TableSection:
    """One table: runs with equal `settings`, which differ in rows, columns and the seed alone."""

    layout: TableLayout
    settings: dict[str, Any]
    default_settings: dict[str, Any]  # default values of settings
    dependent_settings: dict[str, str]  # settings that a row or column setting determines, and that setting
    rows: list[GroupKey]
    columns: list[GroupKey]
    aggregates: dict[tuple[GroupKey, GroupKey], SeedAggregate]

    @property
    def seed_counts(self) -> set[int]:
        """Distinct numbers of seeds per table entry, without empty entries."""
        return {aggregate.seeds for aggregate in self.aggregates.values() if aggregate.seeds}


def build_sections(runs: Iterable[RunSummary], layout: TableLayout) -> tuple[list[TableSection], list[str]]:
    """Group runs into sections and average them over seeds.

    Averaged runs differ in the seed alone, or in settings without an effect on the model. Other differences
    make a section, or rows by default where sections would have a single row. Also returns notes for the
    reader. Raises InputError without runs, or for a measurement that no run has.
    """
    kept, notes = setting_labels.drop_repeated_runs(runs, *({"ranks"} & {*layout.axes}))
    varying = setting_labels.varying_settings(kept)
    full = layout.with_defaults(kept, varying)
    check_value_names(kept, full.values)
    others = [name for name in varying if name not in full.axes]
    of_method = setting_labels.settings_of_methods(kept, full.axes) if "method" in full.axes else ()
    dependent = dict.fromkeys(of_method, "method")
    dependent |= {"colluders": COLLUDERS_SHARE} if {COLLUDERS_SHARE, "machines"} <= {*full.axes} else {}
    groups = _group_by_common_settings(kept, full, dependent, varying)
    columns = {tuple(setting_labels.group_by_settings(subset, full.columns)) for subset in groups.values()}
    row_counts = {len(setting_labels.group_by_settings(subset, full.rows)) for subset in groups.values()}
    added = [name for name in others if name not in dependent]
    if not layout.rows and len(groups) > 1 == len(columns) and row_counts == {1} and len(added) <= 2:
        full = replace(full, rows=(*full.rows, *added))
        groups = _group_by_common_settings(kept, full, dependent, varying)
    order = sorted(groups, key=lambda key: [(name, setting_labels.sort_key((value,))) for name, value in key])
    sections = [_build_section(dict(key), groups[key], full, dependent) for key in order]
    return sections, [*notes, *version_note(kept)]


def _group_by_common_settings(
    runs: Sequence[RunSummary], layout: TableLayout, dependent: Collection[str], varying: Sequence[str]
) -> dict[GroupKey, list[RunSummary]]:
    """Group runs into table sections, by (name, value) pairs of the settings that differ in no section."""
    excluded = {*layout.axes, *AVERAGED_SETTINGS, *dependent}
    rows = [run.independent_settings for run in runs]
    values_of = {name: {row[name] for row in rows} for name in rows[0] if name not in excluded}
    names, delta = [n for n, values in values_of.items() if n in varying or len(values) == 1], None
    # An epsilon is shown with its delta, if all runs have the same delta.
    if "epsilon" in layout.axes and len(deltas := values_of.get("delta", set()) - {None}) == 1:
        names, (delta,) = list(dict.fromkeys([*names, "delta"])), deltas
    groups: dict[GroupKey, list[RunSummary]] = {}
    for run, own in zip(runs, rows, strict=True):
        row = own if delta is None else {**own, "delta": delta}
        shared = tuple((name, row[name]) for name in names if row[name] is not None)
        groups.setdefault(shared, []).append(run)
    return groups


def version_note(runs: Sequence[RunSummary]) -> list[str]:
    """Return a note on the versions of mu2mpi that made the runs; none for a single version."""
    versions = sorted({run.mu2mpi_version for run in runs if run.mu2mpi_version})
    return [f"these results were made by versions {join_names(versions)} of mu2mpi"] if versions[1:] else []


def _build_section(
    settings: dict[str, Any], runs: Sequence[RunSummary], layout: TableLayout, dependent: dict[str, str]
) -> TableSection:
    groups, n_rows, aggregates = setting_labels.group_by_settings(runs, layout.axes), len(layout.rows), {}
    rows = sorted({key[:n_rows] for key in groups}, key=setting_labels.sort_key)
    columns = sorted({key[n_rows:] for key in groups}, key=setting_labels.sort_key)
    names = layout.values
    for row, column in product(rows, columns):
        subset, others = groups.get(row + column, []), dict[str, Any]()
        if subset:
            known, own = subset[0].settings, subset[0].independent_settings
            others = {name: known[name] if name == "colluders" else own[name] for name in dependent}
            if known["epsilon"] is not None and "rho" not in layout.axes:
                others["rho"] = known["rho"]
        key = _paper_experiment_key(settings | others | dict(zip(layout.axes, row + column, strict=True)))
        aggregates[row, column] = SeedAggregate(
            seeds=len(subset),
            values={n: mean_and_std([run.table_row.get(n, math.nan) for run in subset]) for n in names},
            paper_values={} if dependent and not subset else _read_paper_values().get(key, {}),
            settings=others,
            diameters=frozenset(run.experiment.diameter for run in subset),
        )
    return TableSection(layout, settings, runs[0].experiment.defaults, dependent, rows, columns, aggregates)


def default_measurements(runs: Iterable[RunSummary]) -> tuple[str, ...]:
    """Measurements of a table by default: test loss and score (accuracy for classes, R^2 for numbers)."""
    label_kinds = {run.label_kind for run in runs}
    return ("test_loss", *(score for labels, score in SCORE_COLUMNS.items() if labels in label_kinds))


def check_value_names(runs: Iterable[RunSummary], names: Iterable[str], others: Iterable[str] = ()) -> None:
    """Raise InputError if one of these names is no measurement of any run, and not in `others`."""
    numbers = (n for run in runs for n, value in run.table_row.items() if isinstance(value, int | float))
    known = [name for name in dict.fromkeys(numbers) if name not in TABLE_AXIS_SETTINGS]
    for name in names:
        if name not in (*others, *known):
            hint = did_you_mean(name, [*others, *known]) or suggest_or_list(name, known, "values")
            raise InputError(f"no run has a value {name!r}{hint}")


def mean_and_std(values: Sequence[float]) -> MeanAndStd:
    """Return mean and sample standard deviation of a measurement over runs."""
    if not values:
        return MeanAndStd(math.nan, math.nan)
    # The computed mean of equal numbers may differ from them by rounding.
    are_equal = len(set(values)) == 1
    mean, std = (values[0], 0.0) if are_equal else (np.mean(values), np.std(values, ddof=1))
    return MeanAndStd(float(mean), float(std) if len(values) > 1 else math.nan)


def _paper_experiment_key(settings: Mapping[str, Any]) -> frozenset[tuple[str, Any]]:
    """Return the set of (name, value) pairs of settings that identifies an experiment of the paper."""
    excluded = (*AVERAGED_SETTINGS, "delta", "ranks", COLLUDERS_SHARE)
    return frozenset((n, v) for n, v in settings.items() if v is not None and n not in excluded)


@cache
def _read_paper_values() -> dict[frozenset[tuple[str, Any]], dict[str, float]]:
    text = importlib.resources.files("mu2mpi.analysis").joinpath("paper_tables.csv").read_text("utf-8")
    values_of = {}
    for line in csv.DictReader(text.splitlines()):
        values = {name: float(line.pop(name.removeprefix("test_"))) for name in PAPER_MEASUREMENTS}
        experiment = Experiment.from_settings({"data": "mnist", "diameter": 0.1, **line})
        values_of[_paper_experiment_key(canonical_settings(experiment))] = values
    return values_of
