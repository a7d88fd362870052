"""Loss and score along rounds, samples or gradients: mean and standard deviation over seeds."""

from collections.abc import Sequence
from typing import Any

from mu2mpi.analysis.figures.curves import encode, histories_of, measured, read_histories
from mu2mpi.analysis.figures.style import Figure, Page, canvas, handle, with_legend
from mu2mpi.results.reader import Summary

LABELS = {
    "round": "round t",
    "samples": "training samples used by all machines",
    "gradient_evaluations": "gradients computed by all machines",
}
FAINT = 0.18


def draw(runs: Sequence[Summary], page: Page, against: str = "round") -> Figure:
    """Draw loss above accuracy or R^2, with a panel for each server."""
    encoding, panels = encode(runs, page), measured(runs)
    sharex = "col" if against == "round" else True
    figure, axes = canvas(page, 2, len(encoding.titles), 4.4, encoding.titles, sharex=sharex, sharey="row")
    read_histories(runs)
    banded = False
    for group, place, look in encoding.groups:
        for panel, (name, _, factor) in zip(axes[:, place], panels, strict=True):
            x, values = histories_of(group, against, name)
            mean = factor * values.mean(axis=0)
            panel.plot(x, mean, **look)
            if len(values) > 1:
                banded, deviation = True, factor * values.std(axis=0, ddof=1)
                low, high = mean - deviation, mean + deviation
                panel.fill_between(x, low, high, color=look["color"], alpha=FAINT, linewidth=0)
    for panel, (_, label, _) in zip(axes[:, 0], panels, strict=True):
        panel.set_ylabel(label)
    for panel in axes[1]:
        panel.set_xlabel(LABELS[against])
    for panel in axes.flat:
        panel.set_xscale("log")
    band = handle("band: ± 1 standard deviation", color=page.theme.ink, linewidth=6, alpha=FAINT)
    return with_legend(figure, encoding.legend + [band] * banded + _of_shares(runs))


def _of_shares(runs: Sequence[Summary]) -> list[Any]:
    """Return what a legend says where all but the last points are of a share of the test set."""
    samples = [run.history.test_samples for run in runs]
    shares = sorted(int(of[0]) for of in samples if of[0] < of[-1])
    if not shares:
        return []
    span = f"{shares[0]:,}" + f" to {shares[-1]:,}" * (shares[0] < shares[-1])
    return [handle(f"before the last round: on {span} test samples", linestyle="none")]
