"""Loss and score of the output against privacy, or against any setting: the paper's tables as a picture."""

import math
from collections.abc import Sequence
from typing import Any

from mu2mpi.analysis.cells import build_sections, by_settings, estimate
from mu2mpi.analysis.figures.axis import Axis, axis_of, usual_axis
from mu2mpi.analysis.figures.curves import Encoding, bars_handle, draw_means, encode, measured
from mu2mpi.analysis.figures.style import Figure, Page, canvas, handle, with_legend
from mu2mpi.analysis.groups import Group
from mu2mpi.analysis.layouts import Layout
from mu2mpi.analysis.words import PRIVACY
from mu2mpi.errors import InputError
from mu2mpi.results.reader import Summary

CROSS: dict[str, Any] = {"linestyle": "", "marker": "x", "markersize": 6.5, "markeredgewidth": 0.9}
SILENT: dict[str, Any] = {"linestyle": ":", "linewidth": 0.9}
"""Runs without noise, which have no place on an axis of privacy."""

SPREAD = 0.4
"""Part of the place of a name that points share; no line joins names."""

PAPER = Layout(rows=("server", "rho"), columns=("machines",), values=("test_loss", "test_accuracy"))


def draw(runs: Sequence[Summary], page: Page, against: str | None = None) -> Figure:
    """Draw loss and accuracy or R^2 over what is across, and the paper's values where the settings are its.

    By itself that is privacy as it was set, or the first other number that varies where privacy does not.
    """
    against = against or usual_axis(runs)
    axis, panels = axis_of(runs, against, page), measured(runs)
    if not axis.ticks:
        raise InputError("all runs are without noise (rho = inf), so there is no privacy to set against loss")
    colour = ("machines",) if against in PRIVACY else (*PRIVACY, "machines")
    encoding = encode(runs, page, axis.apart, panel=(), colour=colour)
    columns = len(encoding.titles)
    if columns == 1:
        figure, axes = canvas(page, 1, 2, 3.2)
        axes = axes.T
    else:
        figure, axes = canvas(page, 2, columns, 4.4, encoding.titles, sharex=True, sharey="row")
    if axis.names is not None:
        _use_marks_alone(encoding)
    barred = silent = False
    for group, column, look in encoding.groups:
        points: dict[float, list[Summary]] = {}
        for run in sorted(group.runs, key=axis.place):
            points.setdefault(axis.place(run), []).append(run)
        known = [x for x in points if math.isfinite(x)]
        for panel, (name, _, factor) in zip(axes[:, column], panels, strict=True):
            found = {x: estimate([run.row[name] for run in of]) for x, of in points.items()}
            if known:
                at = [x + _beside(x, group, column, encoding, axis) for x in known]
                barred |= draw_means(panel, at, [found[x] for x in known], factor, **look)
            if math.inf in found:
                silent = True
                panel.axhline(factor * found[math.inf].mean, color=look["color"], **SILENT)
    crossed = columns == 1 and against in (*PAPER.places, "epsilon") and _draw_paper(axes, runs, axis, page)
    for (panel, *_), (_, label, _) in zip(axes, panels, strict=True):
        panel.set_ylabel(label)
    for panel in axes.flat:
        axis.scale(panel, page)
    for panel in axes.flat if columns == 1 else axes[-1]:
        panel.set_xlabel(axis.label)
    crosses = [handle("the paper's values", color=page.theme.ink, **CROSS)] * crossed
    silences = [handle("without noise", color=page.theme.ink, **SILENT)] * silent
    return with_legend(figure, [*encoding.legend, *[bars_handle(page)] * barred, *crosses, *silences])


def _beside(x: float, group: Group, column: int, encoding: Encoding, axis: Axis) -> float:
    """Return how far from the place of a name a point is, beside those that share it in its panel."""
    if axis.names is None:
        return 0.0
    here = [
        of for of, at, _ in encoding.groups if at == column and any(axis.place(run) == x for run in of.runs)
    ]
    return SPREAD * ((here.index(group) + 0.5) / len(here) - 0.5)


def _use_marks_alone(encoding: Encoding) -> None:
    """Take the lines from points of names, and from those entries of the legend that have a marker."""
    for _, _, look in encoding.groups:
        look["linestyle"] = ""
    for entry in encoding.legend:
        if entry.get_marker():
            entry.set_linestyle("")


def _draw_paper(axes: Any, runs: Sequence[Summary], axis: Axis, page: Page) -> bool:
    """Draw the paper's values of those cells that have runs, and return whether there are any."""
    members, crossed = by_settings(runs, PAPER.places), False
    for section in build_sections(runs, PAPER)[0] if {run.labels for run in runs} == {"classes"} else []:
        for (row, (machines, *_)), cell in section.cells.items():
            if cell.seeds and cell.paper:
                crossed, at = True, axis.place(members[(*row, machines)][0])
                for panel, name, factor in zip(axes[:, 0], PAPER.values, (1.0, 100.0), strict=True):
                    panel.plot(at, factor * cell.paper[name], color=page.theme.ink, zorder=4, **CROSS)
    return crossed
