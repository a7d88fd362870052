"""Methods side by side: loss and accuracy against gradients computed, and gradients against |S|."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mu2mpi.analysis.comparison import Line, compare
from mu2mpi.analysis.figures.style import Theme, add_legend, canvas, handle, plain_log_ticks
from mu2mpi.results.reader import Summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw"]

MARKS = "osD^vPX"
"""One for each method, as colours alone do not tell so many apart."""

SLOPE: dict[str, Any] = {"linewidth": 0.8, "linestyle": (0, (4, 2)), "alpha": 0.6}

NEAR = 0.25
"""An exponent this near to 3/2, that of noisy minibatch SGD by its theorem, is shown beside it."""


def draw(runs: Sequence[Summary], theme: Theme) -> "Figure":
    """Draw loss, accuracy, and complexity with fitted exponents; bars are standard deviations over seeds."""
    lines = compare(runs)
    figure, axes = canvas(1, 3, 3.8)
    colours = theme.colours(len(lines))
    looks = [{"color": colours[k], "marker": MARKS[k % len(MARKS)]} for k in range(len(lines))]
    for line, look in zip(lines, looks, strict=True):
        for panel, values, factor in (
            (axes[0, 0], line.losses, 1.0),
            (axes[0, 1], line.accuracies, 100.0),
        ):
            mean, bars = factor * values.T
            panel.errorbar(
                line.gradients, mean, np.nan_to_num(bars), capsize=1.5, elinewidth=0.6, linewidth=1.0, **look
            )
        axes[0, 2].plot(line.sizes, line.gradients, linewidth=1.0, **look)
    for panel, label in zip(axes[0], ("test loss (nats)", "test accuracy (%)", None), strict=True):
        panel.set_xscale("log")
        panel.set_xlabel("gradients computed")
        panel.set_ylabel(label)
    axes[0, 0].set_yscale("log")
    plain_log_ticks(axes[0, 0].yaxis, _round_losses(lines))
    axes[0, 2].set(yscale="log", xlabel="samples |S| = nM", ylabel="gradients computed")
    _draw_slopes(axes[0, 2], lines, theme)
    add_legend(figure, _legend(lines, looks, theme))
    return figure


def _round_losses(lines: Sequence[Line]) -> list[float]:
    """Return round losses over the range that is drawn, some five of them."""
    means = np.concatenate([line.losses[:, 0] for line in lines])
    step = max(0.1, round((means.max() - means.min()) / 5, 1))
    return [round(k * step, 1) for k in range(1, 100) if 0.9 * means.min() < k * step < 1.1 * means.max()]


def _draw_slopes(panel: Any, lines: Sequence[Line], theme: Theme) -> None:
    """Draw slope 1 below all lines, and 3/2 above them if one of them is about as steep."""
    fitted = [line for line in lines if not math.isnan(line.exponent)]
    if not fitted:
        return
    low, high = (choose(fitted, key=lambda line: line.gradients[-1]) for choose in (min, max))
    for text, slope, line, factor in (("1", 1.0, low, 1 / 1.8), ("3/2", 1.5, high, 1.8)):
        if line is low or abs(line.exponent - slope) < NEAR:
            ends = line.sizes[[0, -1]]
            guide = factor * line.gradients[-1] * (ends / ends[-1]) ** slope
            panel.plot(ends, guide, color=theme.ink, **SLOPE)
            above = line is high
            panel.annotate(
                text,
                (ends[-1], guide[-1]),
                (-7, 0) if above else (0, -4),
                textcoords="offset points",
                ha="right",
                va="bottom" if above else "top",
                fontsize=7,
            )


def _legend(lines: Sequence[Line], looks: Sequence[dict[str, Any]], theme: Theme) -> list[Any]:
    handles = []
    for line, look in zip(lines, looks, strict=True):
        grows = "" if math.isnan(line.exponent) else f": {line.exponent:.2f}"
        handles.append(handle(f"{line.name}{grows}", linewidth=1.0, **look))
    if any(":" in handle.get_label() for handle in handles):
        handles.append(handle("numbers: fitted exponents of |S|", linestyle=""))
    handles.append(handle("slopes 1 and 3/2", color=theme.ink, **SLOPE))
    if any(np.isfinite(line.losses[:, 1]).any() for line in lines):
        handles.append(
            handle("bars: ± 1 standard deviation", color=theme.ink, linestyle="", marker="|", markersize=9)
        )
    return handles
