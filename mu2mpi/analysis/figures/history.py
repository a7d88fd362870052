"""Loss and accuracy along rounds, samples or gradients: mean and standard deviation over seeds."""

from collections.abc import Sequence

from mu2mpi.analysis.figures.curves import MEASURED
from mu2mpi.analysis.figures.encoding import encode, histories_of, read_histories
from mu2mpi.analysis.figures.style import Figure, Theme, canvas, handle, with_legend
from mu2mpi.results.reader import Summary

LABELS = {
    "round": "round t",
    "samples": "training samples used by all machines",
    "gradient_evaluations": "gradients computed by all machines",
}
FAINT = 0.18


def draw(runs: Sequence[Summary], theme: Theme, against: str) -> Figure:
    """Draw loss above accuracy, with a panel for each server."""
    encoding = encode(runs, theme)
    titles, sharex = encoding.panel.words(), "col" if against == "round" else True
    figure, axes = canvas(2, len(titles), 4.4, titles, sharex=sharex, sharey="row")
    read_histories(runs)
    banded = False
    for group in encoding.groups:
        look, column = encoding.look(group), axes[:, encoding.panel.of(group)]
        for panel, (name, _, factor) in zip(column, MEASURED, strict=True):
            x, values = histories_of(group, against, name)
            mean = factor * values.mean(axis=0)
            panel.plot(x, mean, **look)
            if len(values) > 1:
                banded, deviation = True, factor * values.std(axis=0, ddof=1)
                band = mean - deviation, mean + deviation
                panel.fill_between(x, *band, color=look["color"], alpha=FAINT, linewidth=0)
    for panel, (_, label, _) in zip(axes[:, 0], MEASURED, strict=True):
        panel.set_ylabel(label)
    for panel in axes[1]:
        panel.set_xlabel(LABELS[against])
    for panel in axes.flat:
        panel.set_xscale("log")
    legend = encoding.legend()
    if banded:
        legend.append(handle("band: ± 1 standard deviation", color=theme.ink, linewidth=6, alpha=FAINT))
    return with_legend(figure, legend)
