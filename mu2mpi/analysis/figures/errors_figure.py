"""Error of the estimates d_t of the gradient along a run, before noise.

It is known for populations, whose gradient is exact. The mean square with corrected momentum at averages
falls like 1 / t, and with plain gradients it stays level; both slopes are drawn thin.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mu2mpi.analysis.figures._encoding import encode, mean_history
from mu2mpi.analysis.figures.figure import INK, Figure, Page, Sheet, handle
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import register
from mu2mpi.results.reader import Summary

SLOPE: dict[str, Any] = {"color": INK, "linewidth": 0.8, "alpha": 0.5}


@register
class ErrorsFigure(Figure):
    name = "errors"

    def draw(self, runs: Sequence[Summary], page: Page, against: str | None = None) -> Sheet:
        """Draw the mean over seeds of the squared error against t, of the runs on a population."""
        runs = [run for run in runs if np.isfinite(run.history.estimate_error).any()]
        if not runs:
            raise InputError("the error of d_t is known of populations only, such as --data population")
        encoding = encode(runs, page, colour=("method", "rho", "machines"))
        sheet = Sheet(page, 1, len(encoding.titles), 2.4, encoding.titles, sharex=True, sharey=True)
        for group, column, look in encoding.groups:
            found, panel = mean_history(group.runs, "round", "estimate_error"), sheet.panels[0, column]
            panel.plot(found.x, found.y, **look)
            weights = found.x.map(group.runs[0].experiment.chosen_method.estimator.weight)
            panel.plot(found.x, found.y.iloc[0] / weights, **SLOPE)
        for panel in sheet.panels.flat:
            label = "mean of ‖d$_t$ - ∇f(x$_t$)‖² (no unit)"
            panel.set(xscale="log", yscale="log", xlabel="round t", ylabel=label)
        sheet.legend = [*encoding.legend, handle("slopes -1 and 0", **SLOPE)]
        return sheet
