"""Loss and accuracy (or R^2) against privacy or another setting, one line per combination of the rest."""

import math
from collections.abc import Sequence
from typing import Any

from mu2mpi.analysis.aggregation import PAPER_MEASUREMENTS, TableLayout, build_sections
from mu2mpi.analysis.figures._encoding import encode_runs, measured_y_axes
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
CATEGORY_SPREAD_SHARE = 0.4  # share of a category's width over which points are spread
PAPER_TABLE_LAYOUT = TableLayout(rows=("server", "rho"), columns=("machines",), values=PAPER_MEASUREMENTS)


@register
class TradeoffFigure(Figure):
    name = "tradeoff"
    required_column = "test_loss"
    x_axes = tuple(option_fields())

    def is_in_report(self, runs: Sequence[RunSummary]) -> bool:
        return len({run.experiment.rho for run in runs}) > 1

    def draw(self, runs: Sequence[RunSummary], options: FigureOptions, x_axis: str | None = None) -> Layout:
        """Draw test loss, and accuracy or R², against privacy or the first numeric setting that varies."""
        x_axis = x_axis or _default_x_axis(runs)
        values = _distinct_values(runs, x_axis)
        if not values:
            raise InputError("all runs have rho = inf. Use runs with noise, or --x-axis another setting")
        is_categorical = not _are_numbers(values)
        colour = ("machines",) if x_axis in PRIVACY_SETTINGS else (*PRIVACY_SETTINGS, "machines")
        encoding = encode_runs(runs, options, _pooled_settings(runs, x_axis), (), colour)
        if len(encoding.titles) == 1:
            layout = Layout(options, 1, 2, 2.2, sharex=True)
            panels = layout.panels.T
        else:
            layout = Layout(options, 2, len(encoding.titles), 1.6, encoding.titles, sharex=True, sharey="row")
            panels = layout.panels
        layout.legend, has_noiseless = encoding.legend, False
        for entry in encoding.legend if is_categorical else []:
            entry.set_linestyle("" if entry.get_marker() else entry.get_linestyle())
        for k, (group, column, style) in enumerate(encoding.groups):
            positions = [_setting_value(run, x_axis) for run in group.runs]
            if is_categorical:
                # No line connects categories.
                style = style | {"linestyle": ""}
                shift = CATEGORY_SPREAD_SHARE * ((k + 0.5) / len(encoding.groups) - 0.5)
                positions = [values.index(position) + shift for position in positions]
            for panel, (name, _, factor) in zip(panels[:, column], measured_y_axes(runs), strict=True):
                y = [factor * run.table_row[name] for run in group.runs]
                points = [*zip(positions, y, strict=True)]
                if noisy := [point for point in points if math.isfinite(point[0])]:
                    layout.draw_means(panel, *zip(*noisy, strict=True), **style)
                if level := [y for x, y in points if math.isinf(x)]:
                    has_noiseless = True
                    panel.axhline(sum(level) / len(level), color=style["color"], **NOISELESS_STYLE)
        for row, (_, label, _) in zip(panels, measured_y_axes(runs), strict=True):
            for panel in row:
                panel.set(xlabel=_x_axis_label(runs, x_axis, options), ylabel=label)
                if is_categorical:
                    names = [options.labels.table_value(x_axis, value) for value in values]
                    panel.set_xticks(range(len(values)), names)
                    panel.set_xlim(-0.5, len(values) - 0.5)
                elif not options.linear and values[0] > 0:
                    set_log_ticks(panel.xaxis, values)
        if panels.shape[1] == 1 and x_axis in (*PAPER_TABLE_LAYOUT.axes, "epsilon") and not is_categorical:
            is_drawn = _draw_paper_values(panels[:, 0], runs, x_axis)
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


def _draw_paper_values(panels: Any, runs: Sequence[RunSummary], x_axis: str) -> bool:
    """Draw the paper's losses and accuracies where there are runs; return whether any was drawn."""
    subset, is_drawn = group_by_settings(runs, PAPER_TABLE_LAYOUT.axes), False
    are_classes = {run.label_kind for run in runs} == {"classes"}
    for section in build_sections(runs, PAPER_TABLE_LAYOUT)[0] if are_classes else []:
        for (row, (machines, *_)), cell in section.aggregates.items():
            if cell.seeds and cell.paper_values:
                is_drawn, place = True, _setting_value(subset[(*row, machines)][0], x_axis)
                for panel, name, factor in zip(panels, PAPER_MEASUREMENTS, (1.0, 100.0), strict=True):
                    y = factor * cell.paper_values[name]
                    panel.plot(place, y, color="black", zorder=4, **PAPER_MARKER)
    return is_drawn
