"""How far d_t is from the gradient at the query point, before noise: the mean over seeds of its square.

It is known for populations, whose gradient is exact. That of corrected momentum at averages falls like 1 / t,
and that of plain gradients stays where it is; both slopes are drawn thin behind them.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mu2mpi.analysis.figures.encoding import encode
from mu2mpi.analysis.figures.history import read_histories, together
from mu2mpi.analysis.figures.style import Theme, add_legend, canvas, handle, panel_titles
from mu2mpi.errors import InputError
from mu2mpi.results.reader import Summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw"]

SLOPE: dict[str, Any] = {"linewidth": 0.8, "alpha": 0.5}


def draw(runs: Sequence[Summary], theme: Theme) -> "Figure":
    """Draw the mean squared error against t, with a panel for each server.

    Raises
    ------
    InputError
        If none of the runs is on a population.
    """
    runs = [run for run in runs if run.experiment.data == "population"]
    if not runs:
        raise InputError("the error of d_t is known for data = population only")
    encoding = encode(runs, theme, colour=("estimator", "query", "rho", "machines"))
    figure, axes = canvas(1, len(encoding.panel_titles()), 3.4, sharey=True, sharex=True)
    read_histories(runs)
    for group in encoding.groups:
        t, squares = together(group, "round", "estimate_error")
        panel, mean = axes[0, encoding.panel_of(group)], squares.mean(axis=0)
        panel.plot(t, mean, **encoding.look(group))
        lasts = group.runs[0].experiment.estimator == "corrected-momentum"
        panel.plot(t, mean[0] / (t if lasts else np.ones(len(t))), color=theme.ink, **SLOPE)
    panel_titles(axes[0], encoding.panel_titles())
    for panel in axes[0]:
        panel.set(xscale="log", yscale="log", xlabel="round t")
    axes[0, 0].set_ylabel("mean of ‖d$_t$ - ∇f(x$_t$)‖² (no unit)")
    add_legend(figure, [*encoding.legend(), handle("slopes -1 and 0", color=theme.ink, **SLOPE)])
    return figure
