"""What several figures draw: histories of groups of runs, means with bars, and logarithmic axes."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.analysis.extra import needed
from mu2mpi.analysis.figures.encoding import Encoding
from mu2mpi.analysis.figures.style import Axes, Figure, Theme, canvas, handle, panel_titles
from mu2mpi.analysis.groups import Group
from mu2mpi.results.collection import shown
from mu2mpi.results.reader import Summary

MEASURED = (("test_loss", "test loss (nats)", 1.0), ("test_accuracy", "test accuracy (%)", 100.0))
"""Measurements, what their axis says, and the factor to its unit."""


def read_histories(runs: Sequence[Summary]) -> None:
    """Read the histories that were not read before, and say so where there are many."""
    for run in shown([run for run in runs if "history" not in vars(run)], "reading the histories of"):
        _ = run.history


def histories_of(group: Group, against: str, name: str) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Return the rounds (or samples) at which all runs of a group were measured, and one row a run."""
    members = [run.history for run in group.runs]
    common = members[0].round
    for history in members[1:]:
        common = np.intersect1d(common, history.round)
    values = np.array([getattr(history, name)[np.isin(history.round, common)] for history in members])
    across: NDArray[Any] = getattr(members[0], against)
    return across[np.isin(members[0].round, common)], values


def along_rounds(encoding: Encoding, label: str) -> tuple[Figure, Any]:
    """Return a figure with a panel for each server, everything logarithmic, and these panels."""
    figure, axes = canvas(1, len(encoding.titles), 3.4, sharey=True, sharex=True)
    panel_titles(axes[0], encoding.titles)
    for panel in axes[0]:
        panel.set(xscale="log", yscale="log", xlabel="round t")
    axes[0, 0].set_ylabel(label)
    return figure, axes[0]


def plain_log_ticks(axis: Any, values: Sequence[float]) -> None:
    """Label a logarithmic axis at the values that occur, as ordinary numbers."""
    ticker = needed("matplotlib.ticker")
    axis.set_major_locator(ticker.FixedLocator(values))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:,.4g}"))
    axis.set_minor_locator(ticker.NullLocator())


def bars_handle(theme: Theme) -> Any:
    """Return what a legend says of error bars."""
    return handle("bars: ± 1 standard deviation", color=theme.ink, linestyle="", marker="|", markersize=9)


def draw_means(
    panel: Axes, x: Sequence[float] | NDArray[Any], estimates: Iterable[Any], factor: float = 1.0, **look: Any
) -> bool:
    """Draw means with bars, from pairs of mean and deviation; return whether any bar is to be seen."""
    means, deviations = factor * np.array([*estimates], float).T
    bars = np.nan_to_num(deviations)
    panel.errorbar(x, means, bars, **{"capsize": 2.5, "elinewidth": 0.9, **look})
    return bool(np.any(bars > 0))
