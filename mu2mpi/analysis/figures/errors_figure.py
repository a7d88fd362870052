"""Error of the gradient estimates d_t, before noise, against the round.

It is known for populations, whose gradient is exact. The mean squared error of corrected momentum at averages
falls like 1 / t, and that of plain gradients is constant; thin lines show both slopes.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mu2mpi.analysis.figures._encoding import encode_runs, mean_history
from mu2mpi.analysis.figures.figure import FOREGROUND, Figure, FigureOptions, Layout, legend_entry
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import register
from mu2mpi.results.reader import RunSummary

SLOPE_STYLE: dict[str, Any] = {"color": FOREGROUND, "linewidth": 0.8, "alpha": 0.5}


@register
class GradientErrorsFigure(Figure):
    name = "errors"

    def draw(self, runs: Sequence[RunSummary], options: FigureOptions, x_axis: str | None = None) -> Layout:
        """Draw squared errors of gradient estimates, averaged over seeds, against rounds, by population."""
        runs = [run for run in runs if np.isfinite(run.history.estimate_error).any()]
        if not runs:
            advice = "Use runs with --data population"
            raise InputError(f"the error of d_t is known for populations only. {advice}")
        encoding = encode_runs(runs, options, colour_settings=("method", "rho", "machines"))
        layout = Layout(options, 1, len(encoding.titles), 2.4, encoding.titles, sharex=True, sharey=True)
        for group, column, style in encoding.groups:
            errors, panel = mean_history(group.runs, "round", "estimate_error"), layout.panels[0, column]
            panel.plot(errors.x, errors.y, **style)
            weights = errors.x.map(group.runs[0].experiment.chosen_method.estimator.gradient_weight)
            panel.plot(errors.x, errors.y.iloc[0] / weights, **SLOPE_STYLE)
        for panel in layout.panels.flat:
            label = "mean of ‖dₜ - ∇f(xₜ)‖² (no unit)"
            panel.set(xscale="log", yscale="log", xlabel="round t", ylabel=label)
        layout.legend = [*encoding.legend, legend_entry("slopes -1 and 0", **SLOPE_STYLE)]
        return layout
