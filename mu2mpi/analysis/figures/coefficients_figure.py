"""Coefficients of features in [-1, 1], with the standard error that the noise alone would give them."""

import math
from collections.abc import Sequence

import numpy as np

from mu2mpi.analysis.figures.figure import INK, MARKERS, Figure, Page, Sheet, colours, handle, short
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import register
from mu2mpi.results.reader import Summary, read_result

MAX_ROWS, MAX_TERMS, MAX_POINTS = 10, 30, 90


@register
class CoefficientsFigure(Figure):
    name = "coefficients"

    def is_reported(self, runs: Sequence[Summary]) -> bool:
        return any(run.experiment.schema for run in runs)

    def draw(self, runs: Sequence[Summary], page: Page, against: str | None = None) -> Sheet:
        """Draw the largest coefficients, and the intercept, of the run with the smallest loss."""
        run = min(runs, key=lambda run: (math.isnan(run.test_loss), run.test_loss))
        found = read_result(run.path).coefficients(scaled=True)
        rows, terms = found.values.shape
        if rows > MAX_ROWS:
            raise InputError(f"{run.path} has over {MAX_ROWS} classes; use mu2mpi show --coefficients")
        most = min(MAX_TERMS, MAX_POINTS // rows) - 1
        largest = np.argsort(-np.abs(found.values[:, :-1]).max(axis=0), kind="stable")[:most]
        chosen = [*np.sort(largest).tolist(), terms - 1]
        sheet = Sheet(page, 1, 1, 0.3 + 0.03 * len(chosen) * (4 + rows), [run.path.name])
        panel, places = sheet.panels[0, 0], np.arange(len(chosen))
        panel.axvline(0, color=INK, linewidth=0.7)
        for k, (name, colour) in enumerate(zip(found.rows, colours(rows), strict=True)):
            at = places + 0.6 * ((k + 0.5) / rows - 0.5)
            look = {"color": colour, "linestyle": "", "marker": MARKERS[k % len(MARKERS)]}
            panel.errorbar(found.values[k, chosen], at, xerr=found.errors[chosen], elinewidth=0.9, **look)
            sheet.legend.append(handle(name, **look))
        panel.set_yticks(places, [short(found.terms[k]) for k in chosen])
        panel.set_ylim(len(chosen) - 0.5, -0.5)
        left_out = f"; {len(chosen) - 1} of {terms - 1}, the largest" * (len(chosen) < terms)
        panel.set_xlabel(f"coefficient of a feature in [-1, 1]{left_out}")
        sheet.legend.append(handle("bars: ± 1 standard error, of the noise alone"))
        return sheet
