"""How far d_t is from the gradient at the query point, before noise: the mean over seeds of its square.

It is known for populations, whose gradient is exact. That of corrected momentum at averages falls like 1 / t,
and that of plain gradients stays where it is; both slopes are drawn thin behind them.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mu2mpi.analysis.figures.curves import along_rounds, encode, histories_of, read_histories
from mu2mpi.analysis.figures.style import Figure, Page, handle, with_legend
from mu2mpi.errors import InputError
from mu2mpi.results.reader import Summary

SLOPE: dict[str, Any] = {"linewidth": 0.8, "alpha": 0.5}


def draw(runs: Sequence[Summary], page: Page) -> Figure:
    """Draw the mean squared error against t, of those runs that are on a population."""
    runs = [run for run in runs if run.experiment.data == "population"]
    if not runs:
        raise InputError("the error of d_t is known for data = population only")
    encoding = encode(runs, page, colour=("method", "rho", "machines"))
    figure, panels = along_rounds(encoding, "mean of ‖d$_t$ - ∇f(x$_t$)‖² (no unit)", page)
    read_histories(runs)
    for group, place, look in encoding.groups:
        t, squares = histories_of(group, "round", "estimate_error")
        panel, mean = panels[place], squares.mean(axis=0)
        panel.plot(t, mean, **look)
        falls = group.runs[0].experiment.estimator == "corrected-momentum"
        panel.plot(t, mean[0] / (t if falls else np.ones(len(t))), color=page.theme.ink, **SLOPE)
    return with_legend(figure, [*encoding.legend, handle("slopes -1 and 0", color=page.theme.ink, **SLOPE)])
