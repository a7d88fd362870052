"""Time per round, efficiency and phases against the number of ranks."""

from collections.abc import Callable, Sequence
from operator import truediv
from typing import Any

import numpy as np
import pandas
from matplotlib.patches import Patch

from mu2mpi.analysis.figures._theme import INK, PAPER
from mu2mpi.analysis.figures.figure import Figure, Page, Sheet, bar_looks, colours, handle, log_ticks, look_of
from mu2mpi.analysis.setting_labels import by_rows, varying
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import register
from mu2mpi.results.reader import Summary

IDEAL: dict[str, Any] = {"color": INK, "linestyle": ":", "linewidth": 0.9}
HOLLOW: dict[str, Any] = {"linestyle": "", "markerfacecolor": PAPER}
MAX_SERIES = 5


@register
class ScalingFigure(Figure):
    name = "scaling"
    needs = "elapsed_seconds"
    repeats_differ_in = ("ranks", "elapsed_seconds")

    def draw(self, runs: Sequence[Summary], page: Page, against: str | None = None) -> Sheet:
        """Draw medians of runs of equal M on the left, of equal M per rank on the right."""
        columns = {
            "strong: the same machines on more ranks": _series(runs, page, "M = {:,}", lambda M, ranks: M),
            "weak: more machines on more ranks": _series(runs, page, "M = {:g} per rank", truediv),
        }
        columns = {title: series for title, series in columns.items() if series}
        if not columns:
            raise InputError("scaling needs one M, or M per rank, on several ranks (see jobs/scaling.sbatch)")
        stacks = max(map(len, columns.values()))
        if stacks > MAX_SERIES:
            raise InputError(f"{stacks} series are too many for a figure; choose some runs with --where")
        heights = [2.1, 1.7, *[1.0] * stacks]
        sheet = Sheet(page, len(heights), len(columns), heights, [*columns], sharex="col", sharey="row")
        everything = pandas.concat([points for series in columns.values() for points in series.values()])
        palette = colours(sum(map(len, columns.values())))
        phases = [name for name in everything if name not in MEASURED and everything[name].max() > 0.001]
        fills = bar_looks(phases)
        for column, (title, series) in zip(sheet.panels.T, columns.items(), strict=True):
            for panel in column[2 + len(series) :]:
                panel.set_axis_off()
            for (label, points), panel in zip(series.items(), column[2:], strict=False):
                k = len(sheet.legend)
                look = look_of(palette[k], k, k)
                sheet.legend.append(handle(label, **look))
                _draw_points(column, points, look | {"label": label}, is_weak=title.startswith("weak"))
                _draw_phases(panel, points, fills)
                panel.set_title(label)
            column[0].set(yscale="log", ylabel="time per round (ms)")
            column[1].set(ylim=(0, None), ylabel="efficiency (%)")
            last = column[1 + len(series)]
            last.set_xlabel("MPI ranks")
            last.tick_params(labelbottom=True)
            log_ticks(column[0].xaxis, (ranks for points in series.values() for ranks in points.index))
        sheet.legend.append(handle("ideal", **IDEAL))
        if (everything.high > everything.low).any():
            sheet.legend.append(handle("bars: least to most", linestyle="", marker="|", markersize=9))
        if everything.crowded.any():
            sheet.legend.append(handle("hollow: more ranks than cores", marker="o", **HOLLOW))
        sheet.legend += [Patch(label=phase, **fill) for phase, fill in fills.items()]
        return sheet


# Median, least and most milliseconds of a round, and whether there are more ranks than cores
MEASURED = ("time", "low", "high", "crowded")


def _series(
    runs: Sequence[Summary], page: Page, text: str, fixed: Callable[[int, float], float]
) -> dict[str, pandas.DataFrame]:
    """Return what is `MEASURED` and the shares of the phases by label and ranks, of runs of one `fixed` M."""
    names = [name for name in varying(runs) if name not in ("machines", "rounds")]

    def row_of(run: Summary) -> dict[str, Any]:
        return {**run.own_settings, "": fixed(run.experiment.machines or 1, run.figures["ranks"])}

    series = {}
    for (level, *others), members in by_rows(runs, ["", *names], row_of).items():
        rows = pandas.DataFrame([{**run.phases, "evaluation": 0.0} for run in members]).fillna(0.0)
        rows = rows.div(rows.sum(axis=1).replace(0.0, 1.0), axis=0).drop(columns="evaluation")
        for row, run in zip(rows.index, members, strict=True):
            # Evaluation is left out.
            spent = run.figures["elapsed_seconds"] - run.phases.get("evaluation", 0.0)
            rows.loc[row, "time"] = 1e3 * spent / (run.experiment.rounds or 1)
            rows.loc[row, "crowded"] = run.figures["ranks"] > run.figures.get("cores", np.inf)
        by_ranks = rows.groupby([int(run.figures["ranks"]) for run in members])
        if len(by_ranks) > 1:
            times = by_ranks["time"].agg(time="median", low="min", high="max")
            label = [text.format(level), page.words.of(dict(zip(names, others, strict=True)))]
            found = by_ranks.mean().drop(columns="time").join(times)
            series[", ".join(filter(None, label))] = found.assign(crowded=found.crowded > 0)
    return series


def _draw_points(column: Any, points: pandas.DataFrame, look: dict[str, Any], is_weak: bool) -> None:
    """Draw medians with bars from the least to the most, and what is ideal as far as there are cores."""
    ranks, crowded = points.index.to_numpy(float), points.crowded.to_numpy(bool)
    ideal = points.time.iloc[0] * (ranks / ranks[0]) ** (0.0 if is_weak else -1.0)
    times = points[["time", "low", "high"]].to_numpy().T
    for panel, (middle, low, high), aim in (
        (column[0], times, ideal),
        (column[1], (100 * ideal / times)[[0, 2, 1]], np.full(len(ranks), 100.0)),
    ):
        panel.errorbar(ranks, middle, [middle - low, high - middle], capsize=2.5, elinewidth=0.9, **look)
        panel.plot(ranks[crowded], middle[crowded], zorder=3, **{**look, **HOLLOW})
        panel.plot(ranks[~crowded], aim[~crowded], **IDEAL)


def _draw_phases(panel: Any, points: pandas.DataFrame, fills: dict[str, dict[str, Any]]) -> None:
    """Draw a bar of phases for each number of ranks; pale with more ranks than cores."""
    ranks = points.index.to_numpy(float)
    gap, below = np.exp(0.35 * np.diff(np.log(ranks)).min()), 0 * ranks
    for phase, fill in fills.items():
        heights = 100 * points.get(phase, 0 * points.time).to_numpy()
        bars = panel.bar(ranks / gap, heights, ranks * gap - ranks / gap, below, align="edge", **fill)
        for bar, crowded in zip(bars, points.crowded, strict=True):
            bar.set_alpha(0.5 if crowded else None)
        below = below + heights
    panel.set(ylabel="time share (%)", ylim=(0, 100))
