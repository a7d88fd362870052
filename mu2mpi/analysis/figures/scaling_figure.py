"""Strong and weak scaling: time per round, efficiency and phases against the number of ranks."""

from collections.abc import Callable, Sequence
from operator import truediv
from typing import Any

import numpy as np
import pandas
from matplotlib.patches import Patch

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

BACKGROUND = "white"
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "oo", "++", "--")  # of bars, which differ in greyscale
IDEAL_SCALING_STYLE: dict[str, Any] = {"color": FOREGROUND, "linestyle": ":", "linewidth": 0.9}
HOLLOW_MARKER: dict[str, Any] = {"linestyle": "", "markerfacecolor": BACKGROUND}
MAX_SCALING_SERIES = 3


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
        heights = [2.1, 1.7, *[1.0] * count]
        layout = Layout(options, len(heights), len(columns), heights, sharex="col", sharey=True)
        everything = pandas.concat([points for series in columns.values() for points in series.values()])
        colours = palette(sum(map(len, columns.values())))
        phases = [name for name in everything if name not in TIME_COLUMNS and everything[name].max() > 0.001]
        bar_properties = {
            phase: {"facecolor": colour, "hatch": hatch, "edgecolor": BACKGROUND, "linewidth": 0.6}
            for phase, colour, hatch in zip(phases, palette(len(phases)), HATCHES, strict=False)
        }
        for column, (title, series) in zip(layout.panels.T, columns.items(), strict=True):
            for panel in column[2 + len(series) :]:
                panel.set_axis_off()
            for (label, points), panel in zip(series.items(), column[2:], strict=False):
                k = len(layout.legend)
                style = line_style(colours[k], k, k)
                layout.legend.append(legend_entry(label, **style))
                _draw_points(column, points, style | {"label": label}, is_weak=title.startswith("weak"))
                _draw_phases(panel, points, bar_properties)
                panel.set_title(label)
            column[0].set(yscale="log", ylabel="time per round (ms)")
            column[1].set(ylim=(0, None), ylabel="efficiency (%)")
            column[0].set_title(title)
            for panel in column:
                panel.set_xlabel("MPI ranks")
            set_log_ticks(column[0].xaxis, (ranks for points in series.values() for ranks in points.index))
        layout.legend.append(legend_entry("ideal", **IDEAL_SCALING_STYLE))
        if (everything.high > everything.low).any():
            bars = legend_entry("bars: minimum to maximum", linestyle="", marker="|", markersize=9)
            layout.legend.append(bars)
        if everything.oversubscribed.any():
            layout.legend.append(legend_entry("hollow: more ranks than cores", marker="o", **HOLLOW_MARKER))
        layout.legend += [Patch(label=phase, **properties) for phase, properties in bar_properties.items()]
        return layout


# Median, minimum and maximum of the milliseconds per round, and whether ranks exceed cores
TIME_COLUMNS = ("time", "low", "high", "oversubscribed")


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
        rows = pandas.DataFrame([{**run.phase_seconds, "evaluation": 0.0} for run in same_level]).fillna(0.0)
        rows = rows.div(rows.sum(axis=1).replace(0.0, 1.0), axis=0).drop(columns="evaluation")
        for row, run in zip(rows.index, same_level, strict=True):
            # Evaluation is not part of a round.
            seconds = run.measurements["elapsed_seconds"] - run.phase_seconds.get("evaluation", 0.0)
            rows.loc[row, "time"] = 1e3 * seconds / (run.experiment.rounds or 1)
            cores = run.measurements.get("cores", np.inf)
            rows.loc[row, "oversubscribed"] = run.measurements["ranks"] > cores
        by_ranks = rows.groupby([int(run.measurements["ranks"]) for run in same_level])
        if len(by_ranks) > 1:
            times = by_ranks["time"].agg(time="median", low="min", high="max")
            labels = [label.format(level), options.labels.settings(dict(zip(names, values, strict=True)))]
            points = by_ranks.mean().drop(columns="time").join(times)
            series[", ".join(filter(None, labels))] = points.assign(oversubscribed=points.oversubscribed > 0)
    return series


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


def _draw_phases(panel: Any, points: pandas.DataFrame, bar_properties: dict[str, dict[str, Any]]) -> None:
    """Draw a stacked bar of phase shares for each number of ranks; pale with more ranks than cores."""
    ranks = points.index.to_numpy(float)
    gap, below = np.exp(0.35 * np.diff(np.log(ranks)).min()), 0 * ranks
    for phase, properties in bar_properties.items():
        heights = 100 * points.get(phase, 0 * points.time).to_numpy()
        bars = panel.bar(ranks / gap, heights, ranks * gap - ranks / gap, below, align="edge", **properties)
        for bar, oversubscribed in zip(bars, points.oversubscribed, strict=True):
            bar.set_alpha(0.5 if oversubscribed else None)
        below = below + heights
    panel.set(ylabel="time share (%)", ylim=(0, 100))
