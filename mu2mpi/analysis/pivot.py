"""Tables as text: labels of rows and columns, rounded numbers, best means, and a legend."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from mu2mpi.analysis.aggregation import TABLE_AXIS_SETTINGS, TableSection
from mu2mpi.analysis.setting_labels import COLLUDERS_SHARE, MISSING, PRIVACY_SETTINGS, GroupKey, Labels
from mu2mpi.core.text import TableRow
from mu2mpi.losses.metrics.metric import all_metrics

# Measurements of which the lowest is the best, beside the loss and metrics
_LOWER_IS_BETTER = ("excess_loss", "elapsed_seconds", "core_hours", "peak_memory", "gradient_evaluations")
_LABELS = {"tpr": "TPR at FPR 1%"}
# Settings of the problem, not of the method: means are compared at equal values of these
_PROBLEM_SETTINGS = (
    "data", "test", "loss", "machines", "rounds", "samples", "features", "classes", "epsilon", "rho", "delta",
    "partition", "participation", "budgets", "seed", "ranks",
)  # fmt: skip


class TableEntry(NamedTuple):
    """Text of a table entry: mean, standard deviation and remark, or the mark of a missing value."""

    mean: str
    std: str = ""
    remark: str = ""
    is_best: bool = False

    def text(self, bold_format: str, escape: Callable[[str], str] = str) -> str:
        """Return the entry as text without padding; the format `bold_format` marks the best entry."""
        number = escape(f"{self.mean} ± {self.std}" if self.std else self.mean)
        number = bold_format.format(number) if self.is_best else number
        return f"{number} {escape(self.remark)}" if self.remark else number


def align_column(column: Sequence[TableEntry]) -> list[str]:
    """Return the entries of a column as text, aligned at decimal points and plus-minus signs."""
    has_best = any(entry.is_best for entry in column)
    means, stds = [entry.mean for entry in column], [entry.std for entry in column]
    texts = []
    paddings = zip(_decimal_paddings(means), _decimal_paddings(stds), strict=True)
    for entry, ((before, after), (std_before, std_after)) in zip(column, paddings, strict=True):
        text = before + entry.mean + ("*" if entry.is_best else " " * has_best)
        text += f"{after} ± {std_before}{entry.std}" if entry.std else ""
        texts.append(f"{text}{std_after if entry.std else after} {entry.remark}" if entry.remark else text)
    return texts


def _decimal_paddings(numbers: TableRow) -> list[tuple[str, str]]:
    """Return the spaces before and after each number that align the decimal points of a column."""
    partitions = [text.partition(".") for text in numbers]
    lengths = [(len(integer_part), len(point + digits)) for integer_part, point, digits in partitions]
    longest, deepest = map(max, zip(*lengths, strict=True))
    return [(" " * (longest - before), " " * (deepest - after)) for before, after in lengths]


class PivotRow(NamedTuple):
    """One row of a table as text: number of its block, labels and entries."""

    block_number: int
    labels: list[str]
    entries: list[TableEntry]


@dataclass(frozen=True)
class PivotTable:
    """Table of a section as text: title, headers, rows and legend."""

    title: str  # settings that are equal in the whole table
    row_headers: list[str]  # names of the row settings, and an empty one above names of measurements
    columns: list[str]
    rows: list[PivotRow]  # in blocks with the same value of the first row setting
    legend: str

    @property
    def header(self) -> list[str]:
        """Headers of all columns of the table."""
        return [*self.row_headers, *self.columns]

    def blocks(self, format_column: Callable[[Sequence[TableEntry]], Sequence[str]]) -> list[list[list[str]]]:
        """Return the rows of each block as text, with columns of entries formatted by `format_column`."""
        columns = zip(*(row.entries for row in self.rows), strict=True)
        rows = zip(self.rows, zip(*map(format_column, columns), strict=True), strict=True)
        blocks = groupby(rows, key=lambda pair: pair[0].block_number)
        return [[[*row.labels, *numbers] for row, numbers in block] for _, block in blocks]


class ValueFormat(NamedTuple):
    """Format of a measurement: label (with a power of ten, if any), factor and number of decimals."""

    label: str
    factor: float
    decimals: int

    def text(self, number: float) -> str:
        """Return a measured number as text in this format."""
        return f"{self.factor * number:,.{self.decimals}f}"


def _measurement_properties(name: str) -> tuple[str, int | None, int]:
    """Return label and decimals of a measurement, and whether higher (1), lower (-1) or neither is better."""
    if name == "test_loss":
        return "loss", 4, -1
    if name in _LOWER_IS_BETTER or (metric := all_metrics().get(name.removeprefix("test_"))) is None:
        return _LABELS.get(name, name.replace("_", " ")), None, -1 if name in _LOWER_IS_BETTER else 0
    decimals = {"%": 1, "1": 4, "label": None}[metric.unit]
    return metric.table_title + " %" * (metric.unit == "%"), decimals, 1 if metric.higher_is_better else -1


def choose_format(name: str, means: Iterable[float]) -> ValueFormat:
    """Return the common number format for the means of a measurement in a table."""
    label, decimals, _ = _measurement_properties(name)
    means = [abs(float(mean)) for mean in means if math.isfinite(mean) and mean]
    if decimals is not None or not means:
        return ValueFormat(label, 100 if label.endswith("%") else 1, decimals or 0)
    lowest, power = (math.floor(math.log10(mean)) for mean in (min(means), max(means)))
    if not -3 <= power < 7:
        exponent = str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
        return ValueFormat(f"{label} (10{exponent})", 10.0**-power, 3)
    digits = 0 if all(mean.is_integer() for mean in means) else 3 - max(lowest, power - 2)
    return ValueFormat(label, 1, max(0, digits))


def pivot_tables(
    sections: Sequence[TableSection], labels: Labels, mark_best: bool = False
) -> list[PivotTable]:
    """Return a text table for each section of runs, optionally with the best comparable means marked."""
    # All tables have the same row settings: those that differ in any section.
    names = sections[0].layout.rows
    shown = [k for k in range(len(names)) if len({row[k] for s in sections for row in s.rows}) > 1]
    same = set.intersection(*({*section.settings.items()} for section in sections))
    return [_pivot_table(section, shown, same, labels, mark_best) for section in sections]


def _pivot_table(
    section: TableSection, shown: Sequence[int], same: set[tuple[str, Any]], labels: Labels, mark_best: bool
) -> PivotTable:
    """Return a text table: `shown` indexes row settings with a column, `same` are settings of all tables."""
    layout, aggregates = section.layout, section.aggregates
    formats = {n: choose_format(n, [a.values[n].mean for a in aggregates.values()]) for n in layout.values}
    best, best_note = _best_means(section, formats, labels) if mark_best else (set(), "")
    firsts = [row[shown[0]] if shown else None for row in section.rows]
    order = list(dict.fromkeys(firsts))
    has_value_labels = len(section.seed_counts) > 1 or len(layout.values) > 1
    rows: list[PivotRow] = []
    for row, first in zip(section.rows, firsts, strict=True):
        block_number = order.index(first) if len(order) < len(firsts) else 0
        row_labels = [labels.table_value(layout.rows[k], row[k]) for k in shown]
        entries_of = []
        for name, style in formats.items():
            # The paper has three decimals of losses, and one of accuracies.
            decimals, entries = min(3, style.decimals), []
            for column in section.columns:
                aggregate = aggregates[row, column]
                mean, std = ("" if math.isnan(n) else style.text(n) for n in aggregate.values[name])
                paper = aggregate.paper_values.get(name)
                remark = "" if paper is None else f"[{style.factor * paper:.{decimals}f}]"
                is_best = (name, row, column) in best
                entries.append(TableEntry(mean, std, remark, is_best) if mean else TableEntry(MISSING))
            entries_of.append((style.label, entries))
        if len(section.seed_counts) > 1:
            counts = [TableEntry(str(aggregates[row, column].seeds or MISSING)) for column in section.columns]
            entries_of.append(("seeds", counts))
        for label, entries in entries_of:
            rows.append(PivotRow(block_number, [*row_labels, *[label] * has_value_labels], entries))
            row_labels = [""] * len(shown)
    constant = {name: section.rows[0][k] for k, name in enumerate(layout.rows) if k not in shown}
    legend = [_legend(section, formats), *_dependent_settings_note(section, labels), *[best_note] * mark_best]
    headers = [*(labels.name(layout.rows[k]) for k in shown), *[""] * has_value_labels]
    common = _shown_settings(section.settings, section.default_settings)
    common |= dict(section.settings.items() - same)
    common |= {name: value for name, value in constant.items() if value is not None}
    title = labels.settings({name: common[name] for name in sorted(common, key=TABLE_AXIS_SETTINGS.index)})
    columns = [_column_label(dict(zip(layout.columns, key, strict=True)), labels) for key in section.columns]
    return PivotTable(title, headers, columns, rows, " ".join(legend))


def _column_label(settings: Mapping[str, Any], labels: Labels) -> str:
    # Of epsilon and rho, the unset one is left out.
    left_out = PRIVACY_SETTINGS if any(settings.get(name) is not None for name in PRIVACY_SETTINGS) else ()
    shown = [(n, value) for n, value in settings.items() if value is not None or n not in left_out]
    return ", ".join(labels.setting(*pair) for pair in shown)


def _best_means(
    section: TableSection, formats: dict[str, ValueFormat], labels: Labels
) -> tuple[set[tuple[str, GroupKey, GroupKey]], str]:
    """Return keys (measurement, row, column) of the best comparable means, and a note on significance."""
    best: set[tuple[str, GroupKey, GroupKey]] = set()
    n_sets, n_close, n_single, axes = 0, 0, 0, section.layout.axes
    compared_at = (*_PROBLEM_SETTINGS, *["server", "colluders", COLLUDERS_SHARE] * ("method" in axes))
    signs = {name: sign for name in formats if (sign := _measurement_properties(name)[2])}
    for name, sign in signs.items():
        values = {key: aggregate.values[name] for key, aggregate in section.aggregates.items()}
        sets: dict[GroupKey, list[tuple[GroupKey, GroupKey]]] = {}
        for (row, column), aggregate in section.aggregates.items():
            if not math.isnan(aggregate.values[name].mean):
                key = tuple(v for n, v in zip(axes, row + column, strict=True) if n in compared_at)
                key = (*key, name == "excess_loss" and aggregate.diameters)
                sets.setdefault(key, []).append((row, column))
        for keys in (keys for keys in sets.values() if len(keys) > 1):
            first, second = sorted(keys, key=lambda key: -sign * values[key].mean)[:2]
            text = formats[name].text(values[first].mean)
            best |= {(name, *key) for key in keys if formats[name].text(values[key].mean) == text}
            errors = [values[k].std / math.sqrt(section.aggregates[k].seeds) for k in (first, second)]
            n_sets += 1
            # The standard deviation of a single seed is NaN.
            n_single += math.isnan(sum(errors))
            n_close += abs(values[first].mean - values[second].mean) <= 2 * math.hypot(*errors)
    if not n_sets:
        return best, "No two means can be compared."
    levels = zip(axes, *(row + column for row, column in section.aggregates), strict=True)
    varying = [name for name, *values in levels if len({*values}) > 1]
    shown = [n for n in compared_at if n in varying and (n, "machines" in axes) != ("rounds", True)]
    equal = [*map(labels.name, shown)]
    balls = {aggregate.diameters for aggregate in section.aggregates.values() if aggregate.seeds}
    if "excess_loss" in formats and len(balls) > 1:
        equal.append(f"{labels.name('diameter')} (of the excess loss)")
    listed = " and ".join(filter(None, [", ".join(equal[:-1]), *equal[-1:]]))
    note = f"{{best}}: the best mean {f'at the same {listed}' if equal else 'of the table'}"
    note += f"; {n_close:,} of {n_sets:,} lead by less than two standard errors" if n_close else ""
    which = f" of {n_single:,} of {n_sets:,}" if n_single < n_sets else ""
    note += f"; one seed cannot show whether the lead{which} is significant" if n_single else ""
    return best, f"{note}."


def _legend(section: TableSection, formats: dict[str, ValueFormat]) -> str:
    values, seeds, labels = section.layout.values, section.seed_counts, [f.label for f in formats.values()]
    *earlier_labels, last_label = (name.removesuffix(" %") for name in labels)
    text = f"{', '.join(earlier_labels)}{' and ' * bool(earlier_labels)}{last_label}"
    if any(name.startswith("test_") for name in values):
        text = f"Test {text} of the output"
    text = text[0].upper() + text[1:] + " in %" * (len(values) == 1 and labels[0].endswith("%"))
    over = f"{min(seeds)} seeds" if len(seeds) == 1 else "the number of seeds in each cell"
    text += "; one seed." if seeds == {1} else f": mean ± standard deviation over {over}."
    if any(name in a.paper_values for a in section.aggregates.values() if a.seeds for name in values):
        text += " In brackets: the paper's value."
    return text if all(a.seeds for a in section.aggregates.values()) else f"{text} {MISSING}: no run."


def _dependent_settings_note(section: TableSection, labels: Labels) -> list[str]:
    labels_by_settings: dict[str, dict[str, None]] = {}
    for (row, column), aggregate in section.aggregates.items():
        axis_values = dict(zip(section.layout.axes, row + column, strict=True))
        for axis in {by: None for by in section.dependent_settings.values() if by != COLLUDERS_SHARE}:
            own = {n: aggregate.settings.get(n) for n, by in section.dependent_settings.items() if by == axis}
            if own := _shown_settings(own, section.default_settings):
                label = labels.setting(axis, axis_values[axis])
                labels_by_settings.setdefault(labels.settings(own), {})[label] = None
    notes = [f"{' and '.join(those)} with {settings}" for settings, those in labels_by_settings.items()]
    return [f"{'; '.join(notes)}."] * bool(notes)


def _shown_settings(settings: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings without unset ones, and without defaults that are names or zero."""
    usual = {name: v for name, v in defaults.items() if isinstance(v, str) or v == 0}
    usual |= {"partition": "iid", "data": None}
    known = {name: value for name, value in settings.items() if value is not None and name != "schema"}
    return {name: value for name, value in known.items() if value != usual.get(name)}
