"""The coefficients of features in [-1, 1], with the standard error that the noise alone would give them."""

import math
from collections.abc import Sequence

import numpy as np

from mu2mpi.analysis.figures.style import MARKERS, Figure, Page, canvas, handle, with_legend
from mu2mpi.errors import InputError
from mu2mpi.results.reader import Summary, read_result

MOST_ROWS, MOST_TERMS, MOST_POINTS = 10, 30, 90

SPREAD = 0.6
"""Part of the place of a feature that its rows share."""


def draw(runs: Sequence[Summary], page: Page) -> Figure:
    """Draw a point for each coefficient, of the features with the largest ones; the intercept is the last.

    Of several runs, the one with the smallest loss is drawn.
    """
    run = min(runs, key=lambda run: (math.isnan(run.test_loss), run.test_loss))
    found = read_result(run.path).coefficients(scaled=True)
    rows, terms = found.values.shape
    if rows > MOST_ROWS:
        raise InputError(
            f"{run.path} has coefficients for {rows} classes, too many for one figure, which takes "
            f"{MOST_ROWS}; mu2mpi show --coefficients prints them"
        )
    most = min(MOST_TERMS, MOST_POINTS // rows) - 1
    largest = np.argsort(-np.abs(found.values[:, :-1]).max(axis=0), kind="stable")[:most]
    chosen = [*np.sort(largest).tolist(), terms - 1]
    figure, axes = canvas(page, 1, 1, 1.2 + 0.03 * len(chosen) * (4 + rows))
    panel, places = axes[0, 0], np.arange(len(chosen))
    panel.axvline(0, color=page.theme.ink, linewidth=0.7)
    handles = []
    for k, (name, colour) in enumerate(zip(found.rows, page.theme.colours(rows), strict=True)):
        at = places + SPREAD * ((k + 0.5) / rows - 0.5)
        look = {"color": colour, "linestyle": "", "marker": MARKERS[k % len(MARKERS)], "label": name}
        panel.errorbar(found.values[k, chosen], at, xerr=found.errors[chosen], elinewidth=0.9, **look)
        handles.append(handle(name, **look))
    panel.set_yticks(places, [found.terms[k] for k in chosen])
    panel.set_ylim(len(chosen) - 0.5, -0.5)
    left_out = f"; {len(chosen) - 1} of {terms - 1}, the largest" * (len(chosen) < terms)
    panel.set_xlabel(f"coefficient of a feature in [-1, 1]{left_out}")
    panel.set_title(run.path.name, loc="left")
    bars = handle("bars: ± 1 standard error, of the noise alone", color=page.theme.ink, linestyle="-")
    return with_legend(figure, [*handles, bars])
