"""Strong and weak scaling: time per round, efficiency and phases against the number of ranks."""

from collections.abc import Callable, Sequence
from operator import truediv
from typing import Any

import numpy as np
import pandas

from mu2mpi.analysis.figures.figure import (
    FOREGROUND,
    Figure,
    FigureOptions,
    Layout,
    legend_entry,
    line_style,
    palette,
    set_log_ticks,
)
from mu2mpi.analysis.setting_labels import group_by_columns, varying_settings
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import register
from mu2mpi.results.reader import RunSummary

IDEAL_SCALING_STYLE: dict[str, Any] = {"color": FOREGROUND, "linestyle": ":", "linewidth": 0.9}
HOLLOW_MARKER: dict[str, Any] = {"linestyle": "", "markerfacecolor": "white"}
MAX_SCALING_SERIES = 3
# Median, minimum and maximum of the milliseconds per round, and whether ranks exceed cores
TIME_COLUMNS = ("time", "low", "high", "oversubscribed")


@register
class ScalingFigure(Figure):
    name = "scaling"
    required_column = "elapsed_seconds"
    repetition_columns = ("ranks", "elapsed_seconds")

    def draw(self, runs: Sequence[RunSummary], options: FigureOptions, x_axis: str | None = None) -> Layout:
        """Draw medians of round times over runs: strong scaling on the left, weak scaling on the right."""
        strong = _scaling_series(runs, options, "M = {:,}", lambda M, ranks: M)
        weak = _scaling_series(runs, options, "M = {:g} per rank", truediv)
        sides = {"strong: the same machines on more ranks": strong, "weak: more machines on more ranks": weak}
        columns = {title: series for title, series in sides.items() if series}
        if not columns:
            problem = "no --machines, or machines per rank, was run on several ranks"
            raise InputError(f"{problem}. See jobs/scaling.sbatch")
        count = max(map(len, columns.values()))
        if count > MAX_SCALING_SERIES:
            raise InputError(f"{count} series are too many for one figure. Select runs with --where")
        layout = Layout(options, 2 + count, len(columns), 1.5, sharex="col", sharey="row")
        everything = pandas.concat([points for series in columns.values() for points in series.values()])
        colours, areas = palette(sum(map(len, columns.values()))), list[Any]()
        phases = [name for name in everything if name not in TIME_COLUMNS and everything[name].max() > 0.1]
        for column, (title, series) in zip(layout.panels.T, columns.items(), strict=True):
            for panel in column[2 + len(series) :]:
                panel.set_axis_off()
            for (label, points), panel in zip(series.items(), column[2:], strict=False):
                k = len(layout.legend)
                style = line_style(colours[k], k, k)
                layout.legend.append(legend_entry(label, **style))
                _draw_points(column, points, style | {"label": label}, is_weak=title.startswith("weak"))
                shares = points.reindex(columns=phases, fill_value=0.0).to_numpy().T
                areas = panel.stackplot(points.index, shares, labels=phases, colors=palette(len(phases)))
                panel.set(title=label, ylabel="time share (%)", ylim=(0, 100))
            column[0].set(yscale="log", ylabel="time per round (ms)", title=title)
            column[1].set(ylim=(0, None), ylabel="efficiency (%)")
            for panel in column:
                panel.set_xlabel("MPI ranks")
            set_log_ticks(column[0].xaxis, (ranks for points in series.values() for ranks in points.index))
        layout.legend.append(legend_entry("ideal", **IDEAL_SCALING_STYLE))
        if (everything.high > everything.low).any():
            bars = legend_entry("bars: minimum to maximum", linestyle="", marker="|", markersize=9)
            layout.legend.append(bars)
        if everything.oversubscribed.any():
            layout.legend.append(legend_entry("hollow: more ranks than cores", marker="o", **HOLLOW_MARKER))
        layout.legend += areas
        return layout


def _scaling_series(
    runs: Sequence[RunSummary], options: FigureOptions, label: str, fixed_size: Callable[[int, float], float]
) -> dict[str, pandas.DataFrame]:
    """Return times per round and shares of phases by number of ranks, for each value of `fixed_size`."""
    names = [name for name in varying_settings(runs) if name not in ("machines", "rounds")]

    def get_row(run: RunSummary) -> dict[str, Any]:
        level = fixed_size(run.experiment.machines or 1, run.measurements["ranks"])
        return {**run.independent_settings, "": level}

    series = {}
    for (level, *values), same_level in group_by_columns(runs, ["", *names], get_row).items():
        by_ranks = pandas.DataFrame(map(_times, same_level)).fillna(0.0).groupby("ranks")
        if len(by_ranks) > 1:
            labels = [label.format(level), options.labels.settings(dict(zip(names, values, strict=True)))]
            times = by_ranks["time"].agg(time="median", low="min", high="max")
            points = by_ranks.mean().drop(columns="time").join(times)
            series[", ".join(filter(None, labels))] = points.assign(oversubscribed=points.oversubscribed > 0)
    return series


def _times(run: RunSummary) -> dict[str, float]:
    """Return the milliseconds per round and the percentages of the phases of a run, without evaluation."""
    phases = {**run.phase_seconds, "evaluation": 0.0}
    seconds = run.measurements["elapsed_seconds"] - run.phase_seconds.get("evaluation", 0.0)
    ranks, total = run.measurements["ranks"], sum(phases.values()) or 1.0
    shares = {phase: 100 * duration / total for phase, duration in phases.items()}
    is_oversubscribed = ranks > run.measurements.get("cores", np.inf)
    time = 1e3 * seconds / (run.experiment.rounds or 1)
    return {**shares, "ranks": ranks, "time": time, "oversubscribed": float(is_oversubscribed)}


def _draw_points(panels: Any, points: pandas.DataFrame, style: dict[str, Any], is_weak: bool) -> None:
    """Draw median times with bars from minimum to maximum, and ideal scaling up to the number of cores."""
    ranks, oversubscribed = points.index.to_numpy(float), points.oversubscribed.to_numpy(bool)
    ideal = points.time.iloc[0] * (ranks / ranks[0]) ** (0.0 if is_weak else -1.0)
    times = points[["time", "low", "high"]].to_numpy().T
    efficiency = (panels[1], (100 * ideal / times)[[0, 2, 1]], np.full(len(ranks), 100.0))
    for panel, (median, low, high), target in ((panels[0], times, ideal), efficiency):
        panel.errorbar(ranks, median, [median - low, high - median], capsize=2.5, elinewidth=0.9, **style)
        panel.plot(ranks[oversubscribed], median[oversubscribed], zorder=3, **{**style, **HOLLOW_MARKER})
        panel.plot(ranks[~oversubscribed], target[~oversubscribed], **IDEAL_SCALING_STYLE)
