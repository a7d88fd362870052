"""Loss and accuracy (or R^2) against the round, with a band of one standard deviation over seeds."""

from collections.abc import Sequence

from mu2mpi.analysis.figures._encoding import encode_runs, mean_history, measured_y_axes
from mu2mpi.analysis.figures.figure import Figure, FigureOptions, Layout, legend_entry
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import register
from mu2mpi.core.suggestions import suggest_or_list
from mu2mpi.results.reader import RunSummary
from mu2mpi.results.records import History

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
    has_value_panels = True

    def draw(self, runs: Sequence[RunSummary], options: FigureOptions, x_axis: str | None = None) -> Layout:
        """Draw test loss beside accuracy or R², in one row of panels per trust mode."""
        x_axis = x_axis or self.x_axes[0]
        for name in options.values:
            if name not in (known := History.column_names()):
                raise InputError(f"there is no history of {name!r}{suggest_or_list(name, known, 'values')}")
        encoding, y_axes = encode_runs(runs, options), measured_y_axes(runs, options)
        layout = Layout(options, len(encoding.titles), len(y_axes), 2.2, encoding.titles, sharex=True)
        has_band = False
        for group, row, style in encoding.groups:
            for panel, (name, _, factor) in zip(layout.panels[row], y_axes, strict=True):
                means = mean_history(group.runs, x_axis, name)
                mean, std = factor * means.y, factor * means["std"]
                panel.plot(means.x, mean, **style)
                if len(group.runs) > 1:
                    has_band, fill = True, {"color": style["color"], "alpha": BAND_ALPHA, "linewidth": 0}
                    panel.fill_between(means.x, mean - std, mean + std, **fill)
        for column, (name, label, _) in zip(layout.panels.T, y_axes, strict=True):
            # Corrected momentum lets the error of the gradient fall like 1 / t.
            yscale = "log" if name == "estimate_error" else "linear"
            for panel in column:
                panel.set(xscale="log", yscale=yscale, xlabel=AXIS_LABELS[x_axis], ylabel=label)
        band = legend_entry("band: ± 1 std", linewidth=6, alpha=BAND_ALPHA)
        layout.legend = encoding.legend + [band] * has_band
        samples = [run.history.test_samples for run in runs]
        if fewer := sorted({f"{int(counts[0]):,}" for counts in samples if counts[0] < counts[-1]}):
            remark = f"before the last round: on {' or '.join(fewer[:3])} test samples"
            layout.legend.append(legend_entry(remark, linestyle="none"))
        return layout
