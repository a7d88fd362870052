"""Time of a run by phase, for each rank or each group of runs."""

from collections.abc import Sequence

import numpy as np
import pandas

from mu2mpi.analysis.figures.figure import Figure, FigureOptions, Layout, bar_styles, legend_entry, wrap_text
from mu2mpi.analysis.setting_labels import group_runs, varying_settings
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import register
from mu2mpi.results.reader import RunSummary, read_result

MAX_BARS_INCHES = 2.7  # height of all bars
MAX_RANKS = 16  # ranks with a bar of their own


@register
class TimingFigure(Figure):
    name = "timing"
    required_column = "elapsed_seconds"
    repetition_columns = ("ranks", "elapsed_seconds")

    def draw(self, runs: Sequence[RunSummary], options: FigureOptions, x_axis: str | None = None) -> Layout:
        """Draw bars of phase times: per rank for runs that differ in the seed alone, per group otherwise.

        Of more groups than fit, those that take longest are drawn.
        """
        ranks_differ = len({run.measurements["ranks"] for run in runs}) > 1
        groups = group_runs(runs, varying_settings(runs) + ["ranks"] * ranks_differ)
        if len(groups) == 1:
            bars = _seconds_by_rank(groups[0].runs)
        else:
            frames = (pandas.DataFrame([run.phase_seconds for run in group.runs]) for group in groups)
            names = [options.labels.settings(group.settings) for group in groups]
            bars = pandas.DataFrame([frame.fillna(0.0).mean() for frame in frames], index=names)
        if bars.empty:
            raise InputError("these results contain no timings")
        names = bars.index.map(lambda name: wrap_text(name, 0.36 * options.width))
        bar_inches, groups_of_runs = 0.13 * (max(name.count("\n") for name in names) + 1) + 0.02, len(bars)
        limit = max(1, int(MAX_BARS_INCHES / bar_inches))
        longest = np.argsort(-bars.sum(axis=1), kind="stable")[:limit]
        bars = bars.set_axis(names).iloc[np.sort(longest)]
        layout = Layout(options, 1, 1, 0.3 + max(0.2, bar_inches) * len(bars))
        panel, left = layout.panels[0, 0], 0.0 * bars.iloc[:, 0].to_numpy()
        # Older files have other phases.
        for phase, style in bar_styles(bars).items():
            widths = bars[phase].fillna(0.0).to_numpy()
            layout.legend.append(panel.barh(range(len(bars)), widths, 0.72, left, label=phase, **style))
            left = left + widths
        panel.set_yticks(range(len(bars)), bars.index)
        panel.invert_yaxis()
        panel.grid(visible=False, axis="y")
        repeats = max(len(group.runs) for group in groups)
        over = ["ranks"] * (len(groups) > 1) + [f"{repeats} runs"] * (repeats > 1)
        panel.set_xlabel(f"time (s){': mean over ' if over else ''}{' and '.join(over)}")
        remark = f"the longest {len(bars)} of {groups_of_runs}"
        layout.legend += [legend_entry(remark, linestyle="")] * (len(bars) < groups_of_runs)
        return layout


def _seconds_by_rank(runs: Sequence[RunSummary]) -> pandas.DataFrame:
    """Return seconds by rank and phase, averaged over runs, and over blocks of ranks beyond `MAX_RANKS`."""
    timings = pandas.concat([pandas.DataFrame(read_result(run.path).timing) for run in runs])
    ranks = timings.fillna(0.0).groupby(level=0).mean()
    size = -(-len(ranks) // MAX_RANKS) or 1
    blocks = ranks.groupby(ranks.index // size).mean()
    ends = [(k * size, min(len(ranks), (k + 1) * size) - 1) for k in blocks.index]
    names = [f"rank {first}" if size == 1 else f"ranks {first} to {last}" for first, last in ends]
    return blocks.set_axis(names, axis=0)
