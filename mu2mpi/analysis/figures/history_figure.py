"""Loss and accuracy (or R^2) against the round, with a band of one standard deviation over seeds."""

from collections.abc import Sequence

from mu2mpi.analysis.figures._encoding import encode_runs, mean_history, measured_y_axes
from mu2mpi.analysis.figures.figure import Figure, FigureOptions, Layout, legend_entry
from mu2mpi.core.registry import register
from mu2mpi.results.reader import RunSummary

AXIS_LABELS = {
    "round": "round t",
    "samples": "training samples used by all machines",
    "gradient_evaluations": "gradients computed by all machines",
}
BAND_ALPHA = 0.18


@register
class HistoryFigure(Figure):
    name = "history"
    required_column = "test_loss"
    x_axes = tuple(AXIS_LABELS)

    def draw(self, runs: Sequence[RunSummary], options: FigureOptions, x_axis: str | None = None) -> Layout:
        """Draw test loss above accuracy or R², in one column of panels per trust mode."""
        x_axis = x_axis or self.x_axes[0]
        encoding = encode_runs(runs, options)
        sharex = "col" if x_axis == "round" else True
        layout = Layout(options, 2, len(encoding.titles), 1.6, encoding.titles, sharex=sharex, sharey="row")
        has_band = False
        for group, column, style in encoding.groups:
            for panel, (name, _, factor) in zip(layout.panels[:, column], measured_y_axes(runs), strict=True):
                means = mean_history(group.runs, x_axis, name)
                mean, std = factor * means.y, factor * means["std"]
                panel.plot(means.x, mean, **style)
                if len(group.runs) > 1:
                    has_band, fill = True, {"color": style["color"], "alpha": BAND_ALPHA, "linewidth": 0}
                    panel.fill_between(means.x, mean - std, mean + std, **fill)
        for row, (_, label, _) in zip(layout.panels, measured_y_axes(runs), strict=True):
            for panel in row:
                panel.set(xscale="log", xlabel=AXIS_LABELS[x_axis], ylabel=label)
        band = legend_entry("band: ± 1 standard deviation", linewidth=6, alpha=BAND_ALPHA)
        layout.legend = encoding.legend + [band] * has_band
        samples = [run.history.test_samples for run in runs]
        if fewer := sorted({f"{int(counts[0]):,}" for counts in samples if counts[0] < counts[-1]}):
            remark = f"before the last round: on {' or '.join(fewer[:3])} test samples"
            layout.legend.append(legend_entry(remark, linestyle="none"))
        return layout
