"""Coefficients for features scaled to [-1, 1], with the standard errors due to the privacy noise."""

import math
from collections.abc import Sequence

import numpy as np

from mu2mpi.analysis.figures.figure import (
    FOREGROUND,
    MARKERS,
    Figure,
    FigureOptions,
    Layout,
    legend_entry,
    palette,
    shorten_name,
)
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import register
from mu2mpi.results.reader import RunSummary, read_result

MAX_DRAWN_MODEL_ROWS = 10  # rows of the model that are drawn
MAX_COEFFICIENTS_PER_ROW = 30  # coefficients of one row that are drawn
MAX_DRAWN_COEFFICIENTS = 90  # coefficients of all rows that are drawn


@register
class CoefficientsFigure(Figure):
    name = "coefficients"

    def is_in_report(self, runs: Sequence[RunSummary]) -> bool:
        return any(run.experiment.schema for run in runs)

    def draw(self, runs: Sequence[RunSummary], options: FigureOptions, x_axis: str | None = None) -> Layout:
        """Draw the largest coefficients and the intercept of the run with the smallest loss."""
        run = min(runs, key=lambda run: (math.isnan(run.test_loss), run.test_loss))
        coefficients = read_result(run.path).coefficients(in_scaled_units=True)
        rows, terms = coefficients.values.shape
        if rows > MAX_DRAWN_MODEL_ROWS:
            fault = f"{run.path} has more than {MAX_DRAWN_MODEL_ROWS} classes"
            raise InputError(f"{fault}. Use mu2mpi show --coefficients")
        limit = min(MAX_COEFFICIENTS_PER_ROW, MAX_DRAWN_COEFFICIENTS // rows) - 1
        largest = np.argsort(-np.abs(coefficients.values[:, :-1]).max(axis=0), kind="stable")[:limit]
        selected = [*np.sort(largest).tolist(), terms - 1]
        layout = Layout(options, 1, 1, 0.3 + 0.03 * len(selected) * (4 + rows), [run.path.name])
        panel, positions = layout.panels[0, 0], np.arange(len(selected))
        panel.axvline(0, color=FOREGROUND, linewidth=0.7)
        for k, (name, colour) in enumerate(zip(coefficients.row_names, palette(rows), strict=True)):
            y = positions + 0.6 * ((k + 0.5) / rows - 0.5)
            style = {"color": colour, "linestyle": "", "marker": MARKERS[k % len(MARKERS)]}
            x, errors = coefficients.values[k, selected], coefficients.standard_errors[selected]
            panel.errorbar(x, y, xerr=errors, elinewidth=0.9, **style)
            layout.legend.append(legend_entry(name, **style))
        panel.set_yticks(positions, [shorten_name(coefficients.terms[k]) for k in selected])
        panel.set_ylim(len(selected) - 0.5, -0.5)
        left_out = f"; {len(selected) - 1} of {terms - 1}, the largest" * (len(selected) < terms)
        panel.set_xlabel(f"coefficient of a feature in [-1, 1]{left_out}")
        layout.legend.append(legend_entry("bars: ± 1 standard error due to the noise"))
        return layout
