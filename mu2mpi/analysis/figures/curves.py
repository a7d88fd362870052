"""What several figures draw: measurements as means with bars, and logarithmic axes."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.analysis.extra import needed
from mu2mpi.analysis.figures.style import Axes, Theme, handle

MEASURED = (("test_loss", "test loss (nats)", 1.0), ("test_accuracy", "test accuracy (%)", 100.0))
"""Measurements, what their axis says, and the factor to its unit."""


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
