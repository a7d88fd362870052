"""Loss and accuracy (or R^2) against privacy or another setting, one line per combination of the rest."""

import math
from collections.abc import Sequence
from typing import Any

from mu2mpi.analysis.aggregation import PAPER_MEASUREMENTS, TableLayout, build_sections, check_value_names
from mu2mpi.analysis.figures._encoding import dodged_places, encode_runs, measured_y_axes
from mu2mpi.analysis.figures.figure import Figure, FigureOptions, Layout, legend_entry, set_log_ticks
from mu2mpi.analysis.setting_labels import (
    PRIVACY_SETTINGS,
    group_by_settings,
    is_determined_by,
    privacy_settings,
    sort_key,
    varying_settings,
)
from mu2mpi.config.experiment_options import option_fields
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import register
from mu2mpi.results.reader import RunSummary

PAPER_MARKER: dict[str, Any] = {"linestyle": "", "marker": "x", "markersize": 6.5, "markeredgewidth": 0.9}
# Horizontal line of runs without noise, whose rho is infinite
NOISELESS_STYLE: dict[str, Any] = {"linestyle": ":", "linewidth": 0.9}
MAX_RANGE_RATIO = 3.0  # largest ratio of a common vertical range to that of one row
PAPER_TABLE_LAYOUT = TableLayout(rows=("server", "rho"), columns=("machines",), values=PAPER_MEASUREMENTS)


@register
class TradeoffFigure(Figure):
    name = "tradeoff"
    required_column = "test_loss"
    x_axes = tuple(option_fields())
    has_value_panels = True
    report_settings = ("rho",)

    def draw(self, runs: Sequence[RunSummary], options: FigureOptions, x_axis: str | None = None) -> Layout:
        """Draw test loss, and accuracy or R², against privacy or the first numeric setting that varies."""
        x_axis = x_axis or _default_x_axis(runs)
        values = _distinct_values(runs, x_axis)
        if not values:
            raise InputError("all runs have rho = inf. Use runs with noise, or --x-axis another setting")
        check_value_names(runs, options.values)
        is_categorical = not _are_numbers(values)
        is_log = not (is_categorical or options.linear) and values[0] > 0
        colour = ("machines",) if x_axis in PRIVACY_SETTINGS else (*PRIVACY_SETTINGS, "machines")
        encoding = encode_runs(runs, options, _pooled_settings(runs, x_axis), (), colour)
        y_axes, ticks = measured_y_axes(runs, options), [*range(len(values))] if is_categorical else values
        layout = Layout(options, len(encoding.titles), len(y_axes), 2.2, encoding.titles, sharex=True)
        layout.legend, has_noiseless = encoding.legend, False
        for entry in encoding.legend if is_categorical else []:
            entry.set_linestyle("" if entry.get_marker() else entry.get_linestyle())
        for group, row, style in encoding.groups:
            neighbours = [other for other, k, _ in encoding.groups if k == row]
            dodged = dodged_places(ticks, neighbours.index(group), len(neighbours), is_log)
            places = dict(zip(values, dodged.values(), strict=True))
            # No line connects categories.
            style = style | ({"linestyle": ""} if is_categorical else {})
            for panel, (name, _, factor) in zip(layout.panels[row], y_axes, strict=True):
                y_values = [factor * run.table_row.get(name, math.nan) for run in group.runs]
                points = [*zip([_setting_value(run, x_axis) for run in group.runs], y_values, strict=True)]
                if noisy := [(places[value], y) for value, y in points if value in places]:
                    layout.draw_means(panel, *zip(*noisy, strict=True), **style)
                if level := [y for value, y in points if value not in places]:
                    has_noiseless = True
                    panel.axhline(sum(level) / len(level), color=style["color"], **NOISELESS_STYLE)
        for column, (_, label, _) in zip(layout.panels.T, y_axes, strict=True):
            for panel in column:
                panel.set(xlabel=_x_axis_label(runs, x_axis, options), ylabel=label)
                if is_categorical:
                    panel.set_xticks(ticks, [options.labels.table_value(x_axis, value) for value in values])
                    panel.set_xlim(-0.5, len(values) - 0.5)
                elif is_log:
                    set_log_ticks(panel.xaxis, values)
            limits = [panel.get_ylim() for panel in column]
            low, high = min(limits)[0], max(top for _, top in limits)
            if len(limits) > 1 and high - low <= MAX_RANGE_RATIO * min(top - base for base, top in limits):
                for panel in column:
                    panel.set_ylim(low, high)
        if len(encoding.titles) == 1 and x_axis in ("rho", "epsilon", "machines"):
            is_drawn = _draw_paper_values(layout.panels[0], y_axes, runs, x_axis)
            layout.legend += [legend_entry("the paper's values", **PAPER_MARKER)] * is_drawn
        layout.legend += [legend_entry("without noise", **NOISELESS_STYLE)] * has_noiseless
        return layout


def _default_x_axis(runs: Sequence[RunSummary]) -> str:
    vary, (privacy, *_) = varying_settings(runs), privacy_settings(runs)
    numbers = (name for name in vary if _are_numbers(_distinct_values(runs, name)))
    return privacy if {*PRIVACY_SETTINGS} & {*vary} else next(numbers, privacy)


def _are_numbers(values: Sequence[Any]) -> bool:
    return all(type(value) in (int, float) and math.isfinite(value) for value in values)


def _setting_value(run: RunSummary, name: str) -> Any:
    value = run.settings[name]
    return run.measurements["epsilon_exact"] if name == "epsilon" and value is None else value


def _distinct_values(runs: Sequence[RunSummary], name: str) -> list[Any]:
    """Return the distinct values of a setting in ascending order, without an infinite rho or epsilon."""
    values = sorted({_setting_value(run, name) for run in runs}, key=lambda value: sort_key((value,)))
    return [value for value in values if name not in PRIVACY_SETTINGS or math.isfinite(value)]


def _pooled_settings(runs: Sequence[RunSummary], x_axis: str) -> list[str]:
    """Return settings that do not separate lines: the horizontal axis, and sizes that it determines."""
    if x_axis in PRIVACY_SETTINGS:
        return [*PRIVACY_SETTINGS, "delta"]
    rows, pooled = [run.settings for run in runs], [x_axis]
    for size in ("rounds", "machines", "samples", "batch"):
        remaining = [name for name in varying_settings(runs) if name not in (size, *pooled)]
        if size != x_axis and is_determined_by(size, [x_axis, *remaining], rows):
            pooled.append(size)
    return pooled


def _x_axis_label(runs: Sequence[RunSummary], x_axis: str, options: FigureOptions) -> str:
    name = options.labels.name(x_axis)
    if x_axis == "rho":
        return f"privacy {name}  (less private →)"
    if x_axis == "epsilon":
        exact = "exact " * any(run.experiment.epsilon is None for run in runs)
        deltas = ", ".join(f"{delta:g}" for delta in sorted({run.experiment.delta for run in runs}))
        return f"{exact}{name} at δ = {deltas}  (less private →)"
    return f"{x_axis.replace('_', ' ')} {name}" if len(name) == 1 else name


def _draw_paper_values(
    panels: Any, y_axes: Sequence[tuple[str, str, float]], runs: Sequence[RunSummary], x_axis: str
) -> bool:
    """Draw the paper's losses and accuracies where there are runs; return whether any was drawn."""
    subset, is_drawn = group_by_settings(runs, PAPER_TABLE_LAYOUT.axes), False
    are_classes = {run.label_kind for run in runs} == {"classes"}
    for section in build_sections(runs, PAPER_TABLE_LAYOUT)[0] if are_classes else []:
        for (row, (machines, *_)), cell in section.aggregates.items():
            if cell.seeds and cell.paper_values:
                is_drawn, place = True, _setting_value(subset[(*row, machines)][0], x_axis)
                for panel, (name, _, factor) in zip(panels, y_axes, strict=True):
                    y = factor * cell.paper_values.get(name, math.nan)
                    panel.plot(place, y, color="black", zorder=4, **PAPER_MARKER)
    return is_drawn
