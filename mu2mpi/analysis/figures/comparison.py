"""Methods side by side: loss and score against gradients computed, and gradients against |S|."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mu2mpi.analysis.comparison import Line, compare
from mu2mpi.analysis.figures.curves import bars_handle, draw_means, measured
from mu2mpi.analysis.figures.style import Axes, Figure, Page, canvas, handle, with_legend
from mu2mpi.results.reader import Summary

MARKS = "osD^vPX<>p*h"
"""One for each method, as colours alone do not tell so many apart."""

SLOPE: dict[str, Any] = {"linewidth": 0.8, "linestyle": (0, (4, 2)), "alpha": 0.6}

NEAR = 0.25
"""An exponent this near to 3/2, that of sampling with replacement by its theorem, is shown beside it."""


def draw(runs: Sequence[Summary], page: Page) -> Figure:
    """Draw loss, score, and complexity with fitted exponents; bars are standard deviations over seeds.

    Without several amounts of data there is no complexity.
    """
    lines = compare(runs)
    grows = any(len(line.sizes) > 1 for line in lines)
    figure, axes = canvas(page, 1, 2 + grows, 3.8)
    reached = axes[0, :2]
    panels = measured(runs)
    handles, barred = [], False
    looks = [
        {"color": colour, "marker": MARKS[k % len(MARKS)], "linewidth": 1.0, "label": lines[k].name}
        for k, colour in enumerate(page.theme.colours(len(lines)))
    ]
    if all(len(line.sizes) == 1 for line in lines):
        looks = [{**look, "linestyle": ""} for look in looks]
    for line, look in zip(lines, looks, strict=True):
        for panel, values, (_, _, factor) in zip(reached, (line.losses, line.scores), panels, strict=True):
            draw_means(panel, line.gradients, values, factor, capsize=1.5, elinewidth=0.6, **look)
        exponent = "" if math.isnan(line.exponent) else f": {line.exponent:.2f}"
        handles.append(handle(f"{line.name}{exponent}", **look))
        barred |= bool(np.isfinite(line.losses[:, 1]).any())
    for panel, (_, label, _) in zip(reached, panels, strict=True):
        panel.set(xscale="log", xlabel="gradients computed", ylabel=label)
    reached[0].set_yscale("log")
    if grows:
        handles += _draw_complexity(axes[0, 2], lines, looks, page)
    return with_legend(figure, handles + [bars_handle(page)] * barred)


def _draw_complexity(
    panel: Axes, lines: Sequence[Line], looks: Sequence[dict[str, Any]], page: Page
) -> list[Any]:
    """Draw gradients against |S|, with slopes where exponents are known, and return what the legend says."""
    for line, look in zip(lines, looks, strict=True):
        panel.plot(line.sizes, line.gradients, **look)
    panel.set(xscale="log", yscale="log", xlabel="samples |S| = nM", ylabel="gradients computed")
    fitted = [line for line in lines if not math.isnan(line.exponent)]
    if not fitted:
        return []
    drawn = _draw_slopes(panel, fitted, page)
    slopes = handle(f"slope{'s' * (len(drawn) > 1)} {' and '.join(drawn)}", color=page.theme.ink, **SLOPE)
    return [handle("numbers: fitted exponents of |S|", linestyle=""), slopes]


def _draw_slopes(panel: Axes, lines: Sequence[Line], page: Page) -> list[str]:
    """Draw slope 1 below all lines, and 3/2 above them if the highest is about as steep, and name them."""
    drawn = []
    low, high = (choose(lines, key=lambda line: line.gradients[-1]) for choose in (min, max))
    for text, slope, line, factor in (("1", 1, low, 1 / 1.8), ("3/2", 1.5, high, 1.8)):
        if slope == 1 or abs(line.exponent - slope) < NEAR:
            drawn.append(text)
            ends = line.sizes[[0, -1]]
            guide = factor * line.gradients[-1] * (ends / ends[-1]) ** slope
            panel.plot(ends, guide, color=page.theme.ink, **SLOPE)
            offset, side = ((0, -4), "top") if slope == 1 else ((-7, 0), "bottom")
            look: dict[str, Any] = {"textcoords": "offset points", "ha": "right", "va": side, "fontsize": 7}
            panel.annotate(text, (ends[-1], guide[-1]), offset, **look)
    return drawn
