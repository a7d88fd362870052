"""Comparison of two sets of results: settings, environments, and Welch tests of their measurements."""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from mu2mpi.analysis import setting_labels
from mu2mpi.analysis.aggregation import check_value_names, default_measurements, mean_and_std
from mu2mpi.analysis.pivot import PivotRow, PivotTable, TableEntry, align_column, choose_format
from mu2mpi.analysis.setting_labels import MISSING, GroupKey, Labels, RowGetter, varying_settings
from mu2mpi.config.experiment_options import option_fields
from mu2mpi.core.errors import import_extra
from mu2mpi.core.text import text_table, wrap_paragraph
from mu2mpi.results.reader import RunSummary
from mu2mpi.results.records import IDENTITY_ATTRIBUTES

SIGNIFICANCE_LEVEL = 0.05
ComparedRuns = tuple[list[RunSummary], list[RunSummary]]  # A and B
PairedRuns = Mapping[GroupKey, ComparedRuns]  # Runs of both sides by the settings that vary within a side


def compare(first: Sequence[RunSummary], second: Sequence[RunSummary], values: Sequence[str] = ()) -> str:
    """Compare two sets of runs, A and B, by measurements (default: test loss and score), and return text."""
    a, b = (setting_labels.drop_repeated_runs(side, "ranks")[0] for side in (first, second))
    compared, runs = (a, b), [*a, *b]
    values = tuple(values) or default_measurements(runs)
    check_value_names(runs, values)
    given = [n for n in option_fields() if any(run.independent_settings[n] is not None for run in runs)]
    facts = dict.fromkeys(name for run in runs for name in run.contents.environment)
    facts_of_runs = [name for name in facts if name not in IDENTITY_ATTRIBUTES]
    settings = _differences("setting", given, compared, lambda run: run.settings)
    where = _differences("where they ran", facts_of_runs, compared, lambda r: r.contents.environment)
    blocks = [settings or "Settings: the same.", where or "Versions and machines: the same."]
    # Settings that differ only between the sides do not tell runs apart.
    within = {name for side in compared for name in varying_settings(side)}
    names = [name for name in varying_settings(runs) if name in within]
    groups_a, groups_b = (setting_labels.group_by_settings(side, names) for side in compared)
    if pairs := {key: (groups_a[key], groups_b[key]) for key in groups_a if key in groups_b}:
        table, p_values = _measurement_table(pairs, names, values)
        blocks += [table, _identical_models(pairs), _significance_summary(p_values)]
    for letter, side, other in (("A", groups_a, groups_b), ("B", groups_b, groups_a)):
        if count := sum(len(subset) for key, subset in side.items() if key not in other):
            subject = f"{count:,} run{'s' * (count > 1)} of {letter}"
            blocks.append(f"{subject} without a counterpart that has the same settings.")
    return "\n\n".join(filter(None, blocks))


def _differences(title: str, names: Iterable[str], compared: ComparedRuns, get_row: RowGetter) -> str:
    """Return a table of the named values of both sides, where they differ; empty if nowhere."""
    rows = []
    for name in names:
        a, b = (
            setting_labels.join_values(get_row(run).get(name, MISSING) for run in side) for side in compared
        )
        rows += [[name, a, b]] if a != b else []
    return text_table([title, "A", "B"], [rows]) if rows else ""


def _measurement_table(
    pairs: PairedRuns, names: Sequence[str], values: Sequence[str]
) -> tuple[str, list[float]]:
    """Return a table of the means of both sides, and the p-values of their differences."""
    rows, p_values, labels = [], [], Labels()
    for key, compared in pairs.items():
        row_labels = [labels.table_value(name, value) for name, value in zip(names, key, strict=True)]
        for value in values:
            samples = [[run.table_row.get(value, math.nan) for run in side] for side in compared]
            a, b = map(mean_and_std, samples)
            p_values.append(welch_p_value(*samples))
            style = choose_format(value, [a.mean, b.mean])
            numbers = [(style.text(e.mean), style.text(e.std)) for e in (a, b)]
            numbers += [(style.text(b.mean - a.mean), ""), (f"{p_values[-1]:.2g}", "")]
            entries = [TableEntry(MISSING if m == "nan" else m, std.replace("nan", "")) for m, std in numbers]
            rows.append(PivotRow(0, [*row_labels, style.label], entries))
            row_labels = [""] * len(names)
    table = PivotTable("", [*map(labels.name, names), ""], ["A", "B", "B - A", "p"], rows, "")
    text = text_table(table.header, table.blocks(align_column))
    counts = sorted({len(side) for compared in pairs.values() for side in compared})
    over = f"{' or '.join(map(str, counts))} runs" if counts != [1] else "one run"
    return f"{text}\n\n{wrap_paragraph(f'Output on the test set; means over {over}.')}", p_values


def welch_p_value(a: Sequence[float], b: Sequence[float]) -> float:
    """p-value of Welch's t-test for equal means; NaN with fewer than two values on a side."""
    if min(len(a), len(b)) < 2:
        return math.nan
    if np.ptp(a) == np.ptp(b) == 0:
        return float(a[0] == b[0])
    return float(import_extra("scipy.stats").ttest_ind(a, b, equal_var=False).pvalue)


def _identical_models(pairs: PairedRuns) -> str:
    are_equal: list[bool] = []
    for compared in pairs.values():
        a, b = ({run.experiment.seed: run.contents.model_digest for run in side} for side in compared)
        are_equal += [a[seed] == b[seed] for seed in a.keys() & b.keys() if seed is not None]
    if not any(are_equal):
        return ""
    return f"{sum(are_equal):,} of {len(are_equal):,} models of the same seed are equal to the last bit."


def _significance_summary(p_values: Sequence[float]) -> str:
    """Return a sentence on the number of significant differences."""
    if not (known := [p for p in p_values if not math.isnan(p)]):
        return "A test of the differences needs two seeds or more on both sides."
    significant = sum(p < SIGNIFICANCE_LEVEL for p in known)
    by_chance = f"by chance about {SIGNIFICANCE_LEVEL * len(known):.2g} would be"
    test = f"Welch's t-test, p < {SIGNIFICANCE_LEVEL:g}; {by_chance}"
    return wrap_paragraph(f"{significant:,} of {len(known):,} differences are significant ({test}).")
