"""Loss and score of the output against privacy: the paper's tables as a picture."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mu2mpi.analysis.cells import Layout, build_sections, estimate
from mu2mpi.analysis.figures.curves import bars_handle, draw_means, encode, measured, plain_log_ticks
from mu2mpi.analysis.figures.style import Figure, Page, canvas, handle, with_legend
from mu2mpi.analysis.groups import grouped
from mu2mpi.errors import InputError
from mu2mpi.results.reader import Summary

CROSS: dict[str, Any] = {"linestyle": "", "marker": "x", "markersize": 6.5, "markeredgewidth": 0.9}


def draw(runs: Sequence[Summary], page: Page, against: str) -> Figure:
    """Draw loss beside accuracy or R^2, and the paper's values where the settings are the paper's."""
    runs = [run for run in runs if np.isfinite(run.experiment.rho)]
    if not runs:
        raise InputError("all runs are without noise (rho = inf), so there is no privacy to set against loss")
    apart = ("rho", "delta") if against == "epsilon" else ("rho",)
    encoding = encode(runs, page, apart=apart, panel=(), colour=("machines",))
    figure, axes = canvas(page, 1, 2, 3.2)
    panels = measured(runs)
    ticks: set[float] = set()
    barred = False
    for group, _, look in encoding.groups:
        points = grouped(group.runs, ["rho"])
        x = [_abscissa(point.runs[0], against) for point in points]
        ticks.update(x)
        for panel, (name, _, factor) in zip(axes[0], panels, strict=True):
            found = [estimate([run.row[name] for run in point.runs]) for point in points]
            barred |= draw_means(panel, x, found, factor, **look)
    of_paper = _papers_values(runs)
    for at, values in of_paper:
        for panel, (name, _, factor) in zip(axes[0], panels, strict=True):
            panel.plot(_abscissa(at, against), factor * values[name], color=page.theme.ink, zorder=4, **CROSS)
    deltas = ", ".join(f"{delta:g}" for delta in sorted({run.experiment.delta for run in runs}))
    across = "privacy ρ" if against == "rho" else f"exact ε at δ = {deltas}"
    for panel, (_, label, _) in zip(axes[0], panels, strict=True):
        panel.set(xscale="log", xlabel=f"{across}  (less private →)", ylabel=label)
        plain_log_ticks(panel.xaxis, sorted(ticks) if len(ticks) <= 8 else sorted(ticks)[:: len(ticks) // 6])
    crosses = [handle("the paper's values", color=page.theme.ink, **CROSS)] if of_paper else []
    return with_legend(figure, [*encoding.legend, *[bars_handle(page)] * barred, *crosses])


def _abscissa(run: Summary, against: str) -> float:
    return run.experiment.rho if against == "rho" else run.figures["epsilon_exact"]


def _papers_values(runs: Sequence[Summary]) -> list[tuple[Summary, dict[str, float]]]:
    """Return the paper's values of those cells that have runs, each with a run of the same rho."""
    by_rho = {run.experiment.rho: run for run in runs}
    sections, _ = build_sections(runs, Layout())
    return [
        (by_rho[row[1]], cell.paper)
        for section in sections
        for (row, _), cell in section.cells.items()
        if cell.seeds and cell.paper
    ]
