"""Loss and accuracy along rounds, samples or gradients: mean and standard deviation over seeds."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.analysis.figures.encoding import encode
from mu2mpi.analysis.figures.style import Theme, add_legend, canvas, handle, panel_titles
from mu2mpi.analysis.groups import Group
from mu2mpi.results.collection import shown
from mu2mpi.results.reader import Summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw", "read_histories", "together"]

LABELS = {
    "round": "round t",
    "samples": "training samples used by all machines",
    "gradient_evaluations": "gradients computed by all machines",
}
MEASURED = (("test_loss", "test loss (nats)", 1.0), ("test_accuracy", "test accuracy (%)", 100.0))


def draw(runs: Sequence[Summary], theme: Theme, against: str) -> "Figure":
    """Draw loss above accuracy, with a panel for each server."""
    encoding = encode(runs, theme)
    figure, axes = canvas(
        2, len(encoding.panel_titles()), 4.4, sharex="col" if against == "round" else True, sharey="row"
    )
    read_histories(runs)
    banded = False
    for group in encoding.groups:
        look, column = encoding.look(group), encoding.panel_of(group)
        for panel, (name, _, factor) in zip(axes[:, column], MEASURED, strict=True):
            x, values = together(group, against, name)
            mean = factor * values.mean(axis=0)
            panel.plot(x, mean, **look)
            if len(values) > 1:
                deviation = factor * values.std(axis=0, ddof=1)
                panel.fill_between(
                    x, mean - deviation, mean + deviation, color=look["color"], alpha=0.18, linewidth=0
                )
                banded = True
    panel_titles(axes[0], encoding.panel_titles())
    for panel, (_, label, _) in zip(axes[:, 0], MEASURED, strict=True):
        panel.set_ylabel(label)
    for panel in axes[1]:
        panel.set_xlabel(LABELS[against])
    for panel in axes.flat:
        panel.set_xscale("log")
    legend = encoding.legend()
    if banded:
        legend.append(handle("band: ± 1 standard deviation", color=theme.ink, linewidth=6, alpha=0.18))
    add_legend(figure, legend)
    return figure


def read_histories(runs: Sequence[Summary]) -> None:
    """Read the histories that were not read before, and say so where there are many."""
    for run in shown([run for run in runs if "history" not in vars(run)], "reading the histories of"):
        _ = run.history


def together(group: Group, against: str, name: str) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Return the rounds (or samples) at which all runs of a group were measured, and one row a run."""
    members = [run.history for run in group.runs]
    common = members[0].round
    for history in members[1:]:
        common = np.intersect1d(common, history.round)
    values = np.array([getattr(history, name)[np.isin(history.round, common)] for history in members])
    across: NDArray[Any] = getattr(members[0], against)
    return across[np.isin(members[0].round, common)], values
