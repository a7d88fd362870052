"""Loss and accuracy (or R^2), or other values, against privacy, another setting or a measurement.

Each line is a combination of the other settings, and has a fitted exponent where both axes are logarithmic.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import pandas

from mu2mpi.analysis.aggregation import check_value_names
from mu2mpi.analysis.figures._encoding import (
    dodged_places,
    encode_runs,
    fit_exponents,
    is_drawn_by_ratio,
    measured_y_axes,
)
from mu2mpi.analysis.figures.figure import Figure, FigureOptions, Layout, legend_entry, set_log_ticks
from mu2mpi.analysis.setting_labels import (
    PRIVACY_SETTINGS,
    is_determined_by,
    privacy_settings,
    sort_key,
    varying_settings,
)
from mu2mpi.config.experiment_options import option_fields
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import register
from mu2mpi.results.reader import PRIVACY_ATTRIBUTES, RunSummary

# Horizontal line of runs without noise, whose rho is infinite
NOISELESS_STYLE: dict[str, Any] = {"linestyle": ":", "linewidth": 0.9}
MAX_RANGE_RATIO = 3.0  # largest ratio of a common vertical range to that of one row


class HorizontalAxis(NamedTuple):
    """Horizontal axis: a setting or the ranks, whose values have ticks, or a measurement."""

    name: str
    values: list[Any]  # distinct values, ascending
    is_measured: bool
    is_categorical: bool
    is_log: bool

    @property
    def ticks(self) -> list[Any]:
        """Places of the values: the values themselves, or the numbers of categories."""
        return [*range(len(self.values))] if self.is_categorical else self.values


@register
class TradeoffFigure(Figure):
    name = "tradeoff"
    required_column = "test_loss"
    x_axes = None
    has_value_panels = True
    report_settings = ("rho", "machines", "method", "estimator", "query")

    def draw(self, runs: Sequence[RunSummary], options: FigureOptions, x_axis: str | None = None) -> Layout:
        """Draw values against privacy, the first numeric setting that varies, or the number of gradients."""
        axis = _horizontal_axis(runs, x_axis or _default_x_axis(runs), options)
        check_value_names(runs, options.values)
        pooled, varying = _pooled_settings(runs, axis), varying_settings(runs)
        colour = ("machines",) if {*PRIVACY_SETTINGS} <= {*pooled} else (*PRIVACY_SETTINGS, "machines")
        # Trust modes with colluders are compared at equal privacy.
        panels = PRIVACY_SETTINGS if "colluders" in varying else ()
        encoding, y_axes = encode_runs(runs, options, pooled, panels, colour), measured_y_axes(runs, options)
        layout = Layout(options, len(encoding.titles), len(y_axes), 2.2, encoding.titles, sharex=True)
        by_ratio = [name for name, *_ in y_axes if axis.is_log and is_drawn_by_ratio(runs, name)]
        _set_axes(layout, axis, {label: name in by_ratio for name, label, _ in y_axes}, runs)
        has_noiseless, lines, exponents = False, dict[str, Any](), dict[tuple[str, int, str], float]()
        for group, row, style in encoding.groups:
            line = options.labels.settings({n: group.settings[n] for n in encoding.line_settings})
            lines.setdefault(line, style)
            if axis.is_measured:
                places = _means_over_seeds(group.runs, axis.name, {*pooled} & {*varying})
            else:
                neighbours = [other for other, k, _ in encoding.groups if k == row]
                dodged = dodged_places(axis.ticks, neighbours.index(group), len(neighbours), axis.is_log)
                place_of = {math.inf: math.inf} | dict(zip(axis.values, dodged.values(), strict=True))
                places = [place_of[_x_value(run, axis.name)] for run in group.runs]
            # No line connects categories.
            style = style | ({"linestyle": ""} if axis.is_categorical else {})
            for panel, (name, _, factor) in zip(layout.panels[row], y_axes, strict=True):
                y_values = [factor * run.table_row.get(name, math.nan) for run in group.runs]
                points = [*zip(places, y_values, strict=True)]
                if noisy := [(x, y) for x, y in points if math.isfinite(x)]:
                    means = layout.draw_means(panel, *zip(*noisy, strict=True), **style)
                    if name in by_ratio:
                        slope = fit_exponents(means.index.to_numpy(), means.to_numpy())
                        exponents[line, row, name] = float(slope)
                if level := [y for x, y in points if x == math.inf]:
                    has_noiseless = True
                    panel.axhline(sum(level) / len(level), color=style["color"], **NOISELESS_STYLE)
        _share_similar_scales(layout)
        layout.legend = _fitted_exponents(lines, exponents, options.labels.name(axis.name)) or encoding.legend
        for entry in encoding.legend if axis.is_categorical else []:
            entry.set_linestyle("" if entry.get_marker() else entry.get_linestyle())
        layout.legend += [legend_entry("without noise", **NOISELESS_STYLE)] * has_noiseless
        return layout


def _horizontal_axis(runs: Sequence[RunSummary], name: str, options: FigureOptions) -> HorizontalAxis:
    with_ticks = (*option_fields(), "ranks")
    check_value_names(runs, [name], with_ticks)
    if not (values := _distinct_values(runs, name)):
        raise InputError(f"no run has a finite {name}. Use runs with noise, or another --x-axis")
    is_measured, is_categorical = name not in with_ticks, not _are_numbers(values)
    # A logarithmic axis without ticks cannot show a single place.
    is_log = not (is_categorical or options.linear) and values[0] > 0 and len(values) > is_measured
    return HorizontalAxis(name, values, is_measured, is_categorical, is_log)


def _set_axes(
    layout: Layout, axis: HorizontalAxis, is_log_y: Mapping[str, bool], runs: Sequence[RunSummary]
) -> None:
    """Set scales, ticks and labels of all panels; `is_log_y` has the label of each column."""
    labels = layout.options.labels
    for column, (ylabel, is_log) in zip(layout.panels.T, is_log_y.items(), strict=True):
        for panel in column:
            panel.set(xlabel=_x_axis_label(runs, axis.name, layout.options), ylabel=ylabel)
            panel.set_yscale("log" if is_log else "linear")
            if axis.is_categorical:
                panel.set_xticks(axis.ticks, [labels.table_value(axis.name, value) for value in axis.values])
                panel.set_xlim(-0.5, len(axis.values) - 0.5)
            elif axis.is_log and axis.is_measured:
                panel.set_xscale("log")
            elif axis.is_log:
                set_log_ticks(panel.xaxis, axis.values)


def _share_similar_scales(layout: Layout) -> None:
    """Give the panels of a column a common vertical range, unless it is too large for one of them."""
    for column in layout.panels.T:
        limits = [panel.get_ylim() for panel in column]
        low, high = min(limits)[0], max(top for _, top in limits)
        if len(limits) > 1 and high - low <= MAX_RANGE_RATIO * min(top - base for base, top in limits):
            for panel in column:
                panel.set_ylim(low, high)


def _fitted_exponents(
    lines: Mapping[str, dict[str, Any]], exponents: Mapping[tuple[str, int, str], float], variable: str
) -> list[Any]:
    """Return legend entries of all lines with their fitted exponents by panel; none without exponents."""
    if not (panels := sorted({key[1:] for key, value in exponents.items() if not math.isnan(value)})):
        return []
    legend = []
    for line, style in lines.items():
        numbers = (exponents.get((line, *panel), math.nan) for panel in panels)
        texts = ("–" if math.isnan(number) else f"{number:z.2f}".replace("-", "−") for number in numbers)
        legend.append(legend_entry(f"{line or 'measured'}: {' | '.join(texts)}", **style))
    by_panel = ", panel by panel" * (len(panels) > 1)
    return [*legend, legend_entry(f"numbers: fitted exponents of {variable}{by_panel}", linestyle="")]


def _default_x_axis(runs: Sequence[RunSummary]) -> str:
    vary, (privacy, *_) = varying_settings(runs), privacy_settings(runs)
    numbers = (name for name in vary if _are_numbers(_distinct_values(runs, name)))
    other = "gradient_evaluations" if "method" in vary else privacy
    return privacy if {*PRIVACY_SETTINGS} & {*vary} else next(numbers, other)


def _are_numbers(values: Sequence[Any]) -> bool:
    return all(type(value) in (int, float) and math.isfinite(value) for value in values)


def _x_value(run: RunSummary, name: str) -> Any:
    """Return the value of a setting, or of a measurement (NaN if unknown)."""
    if name not in run.settings:
        return run.table_row.get(name, math.nan)
    value = run.settings[name]
    return run.measurements["epsilon_exact"] if name == "epsilon" and value is None else value


def _distinct_values(runs: Sequence[RunSummary], name: str) -> list[Any]:
    """Return the distinct values of a column in ascending order, without infinite measurements or privacy."""
    values = sorted({_x_value(run, name) for run in runs}, key=lambda value: sort_key((value,)))
    is_finite_axis = name in PRIVACY_SETTINGS or name not in option_fields()
    return [value for value in values if not is_finite_axis or math.isfinite(value)]


def _means_over_seeds(runs: Sequence[RunSummary], name: str, point_settings: Collection[str]) -> list[float]:
    """Return for each run the mean of a measurement over the runs with its values of some settings."""
    points = [str([run.settings[setting] for setting in point_settings]) for run in runs]
    values = pandas.Series([_x_value(run, name) for run in runs], dtype=float)
    return [*values.groupby(points).transform("mean")]


def _pooled_settings(runs: Sequence[RunSummary], axis: HorizontalAxis) -> list[str]:
    """Return settings that separate no lines: the axis, sizes that it determines, and those it depends on."""
    if axis.name in (*PRIVACY_SETTINGS, *PRIVACY_ATTRIBUTES):
        return [*PRIVACY_SETTINGS, "delta"]
    if axis.is_measured:
        return ["rounds", "samples", "batch"]
    rows, pooled = [run.table_row | run.settings for run in runs], [axis.name]
    for size in ("rounds", "machines", "samples", "batch"):
        remaining = [name for name in varying_settings(runs) if name not in (size, *pooled)]
        if size != axis.name and is_determined_by(size, [axis.name, *remaining], rows):
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
