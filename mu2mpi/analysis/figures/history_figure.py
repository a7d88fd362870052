"""Loss and accuracy (or R^2) along a run, with a band over seeds."""

from collections.abc import Sequence

from mu2mpi.analysis.figures._encoding import encode, mean_history, measures
from mu2mpi.analysis.figures.figure import Figure, Page, Sheet, handle
from mu2mpi.core.registry import register
from mu2mpi.results.reader import Summary

LABELS = {
    "round": "round t",
    "samples": "training samples used by all machines",
    "gradient_evaluations": "gradients computed by all machines",
}
ALPHA = 0.18


@register
class HistoryFigure(Figure):
    name = "history"
    needs = "test_loss"
    axes = tuple(LABELS)

    def draw(self, runs: Sequence[Summary], page: Page, against: str | None = None) -> Sheet:
        """Draw loss above score, with a panel for each server."""
        against = against or self.axes[0]
        encoding = encode(runs, page)
        sharex = "col" if against == "round" else True
        sheet = Sheet(page, 2, len(encoding.titles), 1.6, encoding.titles, sharex=sharex, sharey="row")
        is_banded = False
        for group, column, look in encoding.groups:
            for panel, (name, _, factor) in zip(sheet.panels[:, column], measures(runs), strict=True):
                found = mean_history(group.runs, against, name)
                mean, deviation = factor * found.y, factor * found.deviation
                panel.plot(found.x, mean, **look)
                if len(group.runs) > 1:
                    is_banded, fill = True, {"color": look["color"], "alpha": ALPHA, "linewidth": 0}
                    panel.fill_between(found.x, mean - deviation, mean + deviation, **fill)
        for row, (_, label, _) in zip(sheet.panels, measures(runs), strict=True):
            for panel in row:
                panel.set(xscale="log", xlabel=LABELS[against], ylabel=label)
        band = handle("band: ± 1 standard deviation", linewidth=6, alpha=ALPHA)
        sheet.legend = encoding.legend + [band] * is_banded
        samples = [run.history.test_samples for run in runs]
        if shares := sorted({f"{int(of[0]):,}" for of in samples if of[0] < of[-1]}):
            remark = f"before the last round: on {' or '.join(shares[:3])} test samples"
            sheet.legend.append(handle(remark, linestyle="none"))
        return sheet
