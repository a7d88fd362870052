"""Loss and accuracy of the output against privacy: the paper's tables as a picture."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mu2mpi.analysis.cells import Layout, build_sections, estimate
from mu2mpi.analysis.figures.encoding import Encoding, encode
from mu2mpi.analysis.figures.style import Theme, add_legend, canvas, handle, plain_log_ticks
from mu2mpi.analysis.groups import Group, grouped
from mu2mpi.errors import InputError
from mu2mpi.results.reader import Summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw"]

MEASURED = (("test_loss", "test loss (nats)", 1.0), ("test_accuracy", "test accuracy (%)", 100.0))


def draw(runs: Sequence[Summary], theme: Theme, against: str) -> "Figure":
    """Draw loss beside accuracy; bars are standard deviations over seeds."""
    runs = [run for run in runs if np.isfinite(run.experiment.rho)]
    if not runs:
        raise InputError("all runs are without noise (rho = inf), so there is no privacy to set against loss")
    apart = ("rho", "delta") if against == "epsilon" else ("rho",)
    encoding = encode(runs, theme, apart=apart, panel=(), colour=("machines",))
    figure, axes = canvas(1, 2, 3.2)
    ticks: set[float] = set()
    deviations = False
    for group in encoding.groups:
        points = grouped(group.runs, ["rho"])
        x = [_abscissa(point, against) for point in points]
        ticks.update(x)
        for panel, (name, _, factor) in zip(axes[0], MEASURED, strict=True):
            found = [estimate([run.row()[name] for run in point.runs]) for point in points]
            bars = factor * np.nan_to_num([e.deviation for e in found])
            deviations |= bool(np.any(bars > 0))
            means = [factor * e.mean for e in found]
            panel.errorbar(x, means, bars, capsize=2.5, elinewidth=0.9, **encoding.look(group))
    paper = _draw_paper(axes[0], runs, encoding, against)
    for panel, (_, label, _) in zip(axes[0], MEASURED, strict=True):
        panel.set_xscale("log")
        plain_log_ticks(panel.xaxis, sorted(ticks) if len(ticks) <= 8 else sorted(ticks)[:: len(ticks) // 6])
        panel.set_ylabel(label)
        panel.set_xlabel(_axis_label(runs, against))
    legend = encoding.legend()
    if deviations:
        legend.append(
            handle("bars: ± 1 standard deviation", color=theme.ink, linestyle="", marker="|", markersize=9)
        )
    if paper:
        legend.append(handle("the paper's values", color=theme.ink, **CROSS))
    add_legend(figure, legend)
    return figure


CROSS: dict[str, Any] = {"linestyle": "", "marker": "x", "markersize": 6.5, "markeredgewidth": 0.9}


def _abscissa(point: Group, against: str) -> float:
    run = point.runs[0]
    return run.experiment.rho if against == "rho" else run.figures["epsilon_exact"]


def _axis_label(runs: Sequence[Summary], against: str) -> str:
    deltas = sorted({run.experiment.delta for run in runs})
    if against == "rho":
        return "privacy ρ  (less private →)"
    return f"exact ε at δ = {', '.join(f'{delta:g}' for delta in deltas)}  (less private →)"


def _draw_paper(panels: Any, runs: Sequence[Summary], encoding: Encoding, against: str) -> bool:
    """Mark the paper's values where the settings are the paper's; return whether there are any."""
    by_rho = {run.experiment.rho: run for run in runs}
    sections, _ = build_sections(runs, Layout())
    any_there = False
    for section in sections:
        for (row, column), values in section.paper.items():
            if (row, column) not in section.cells:
                continue
            any_there = True
            at = Group({}, [by_rho[row[1]]])
            for panel, (name, _, factor) in zip(panels, MEASURED, strict=True):
                panel.plot(
                    _abscissa(at, against), factor * values[name], color=encoding.theme.ink, zorder=4, **CROSS
                )
    return any_there
