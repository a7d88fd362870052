"""Coefficients for features scaled to [-1, 1], by the names of their columns."""

import math
from collections.abc import Sequence

import numpy as np

from mu2mpi.analysis.figures.figure import FOREGROUND, Figure, FigureOptions, Layout, palette, shorten_name
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import register
from mu2mpi.results.reader import RunSummary, read_result

MAX_DRAWN_MODEL_ROWS = 10  # rows of the model that are drawn
MAX_BARS_INCHES = 2.9  # height of all bars
RUN_TITLE = ("data", "loss", "method", "server", "machines", "rounds", "epsilon", "rho", "diameter", "seed")


def best_run(runs: Sequence[RunSummary]) -> RunSummary:
    """Return the run with the smallest test loss; the first of them, or of runs without test losses."""
    return min(runs, key=lambda run: (math.isnan(run.test_loss), run.test_loss))


@register
class CoefficientsFigure(Figure):
    name = "coefficients"

    def is_in_report(self, runs: Sequence[RunSummary]) -> bool:
        return read_result(best_run(runs).path).feature_names is not None

    def draw(self, runs: Sequence[RunSummary], options: FigureOptions, x_axis: str | None = None) -> Layout:
        """Draw the largest coefficients and the intercept of the run with the smallest loss."""
        run = best_run(runs)
        coefficients = read_result(run.path).coefficients(in_scaled_units=True)
        rows, terms = coefficients.values.shape
        if rows > MAX_DRAWN_MODEL_ROWS:
            fault = f"{run.path} has more than {MAX_DRAWN_MODEL_ROWS} classes"
            raise InputError(f"{fault}. Use mu2mpi show --coefficients")
        term_inches = 0.1 + 0.05 * rows
        limit = int(MAX_BARS_INCHES / term_inches) - 1
        largest = np.argsort(-np.abs(coefficients.values[:, :-1]).max(axis=0), kind="stable")[:limit]
        selected = [*np.sort(largest).tolist(), terms - 1]
        layout = Layout(options, 1, 1, 0.1 + term_inches * len(selected))
        settings = {n: value for n in RUN_TITLE if (value := run.independent_settings[n]) is not None}
        suffix = " — the run of smallest loss" if len(runs) > 1 and not math.isnan(run.test_loss) else ""
        layout.title = f"Model: {options.labels.settings(settings)}{suffix}"
        panel, positions = layout.panels[0, 0], np.arange(len(selected))
        panel.axvline(0, color=FOREGROUND, linewidth=0.7)
        for k, (name, colour) in enumerate(zip(coefficients.row_names, palette(rows), strict=True)):
            y, bar = positions + 0.8 * ((k + 0.5) / rows - 0.5), {"height": 0.8 / rows, "label": name}
            layout.legend.append(panel.barh(y, coefficients.values[k, selected], color=colour, **bar))
        panel.set_yticks(positions, [shorten_name(coefficients.terms[k]) for k in selected])
        panel.set_ylim(len(selected) - 0.5, -0.5)
        panel.grid(visible=False, axis="y")
        left_out = f"; {len(selected) - 1} of {terms - 1}, the largest" * (len(selected) < terms)
        panel.set_xlabel(f"coefficient of a feature in [-1, 1]{left_out}")
        return layout
