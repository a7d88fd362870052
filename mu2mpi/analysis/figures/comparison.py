"""Methods at equal privacy: loss and score against gradients computed, and these against the samples."""

import math
from collections.abc import Sequence
from typing import Any

from mu2mpi.analysis.comparison import compare
from mu2mpi.analysis.figures._lines import measures
from mu2mpi.analysis.figures._page import INK, Page
from mu2mpi.analysis.figures._sheet import Sheet, colours, handle
from mu2mpi.results.reader import Summary

NEEDS = "test_loss"

MARKERS = "osD^vPX<>p*h"
"""One for each method, as colours alone do not tell so many apart."""

SLOPE: dict[str, Any] = {"color": INK, "linewidth": 0.8, "linestyle": (0, (4, 2)), "alpha": 0.6}


def is_reported(runs: Sequence[Summary]) -> bool:
    """Return whether a report of these runs has this figure."""
    switches = ("method", "estimator", "query")
    return any(len({getattr(run.experiment, name) for run in runs}) > 1 for name in switches)


def draw(runs: Sequence[Summary], page: Page) -> Sheet:
    """Draw loss, score, and, of several amounts of data, complexity with fitted exponents."""
    lines = compare(runs)
    grows = any(len(line.sizes) > 1 for line in lines)
    sheet = Sheet(page, 1, 2 + grows, 2.7)
    for panel, (_, label, _) in zip(sheet.panels[0], measures(runs), strict=False):
        panel.set(xscale="log", xlabel="gradients computed", ylabel=label)
    sheet.panels[0, 0].set_yscale("log")
    for k, (line, colour) in enumerate(zip(lines, colours(len(lines)), strict=True)):
        look = {"color": colour, "marker": MARKERS[k % len(MARKERS)], "linewidth": 1.0, "label": line.name}
        look["linestyle"] = "-" if grows else ""
        both = zip(sheet.panels[0], (line.losses, line.scores), measures(runs), strict=False)
        for panel, values, (_, _, factor) in both:
            sheet.draw_bars(panel, line.gradients, *(factor * values.T), **look)
        exponent = "" if math.isnan(line.exponent) else f": {line.exponent:.2f}"
        sheet.legend.append(handle(f"{line.name}{exponent}", **look))
        if grows:
            sheet.panels[0, 2].plot(line.sizes, line.gradients, **look)
    if grows:
        panel = sheet.panels[0, 2]
        panel.set(xscale="log", yscale="log", xlabel="samples |S| = nM", ylabel="gradients computed")
    if fitted := sorted(
        (line for line in lines if not math.isnan(line.exponent)), key=lambda line: line.gradients[-1]
    ):
        # The complexities that theorems have, beside the cheapest and the dearest method.
        for slope, line, factor in ((1.0, fitted[0], 1 / 1.8), (1.5, fitted[-1], 1.8)):
            ends = line.sizes[[0, -1]]
            panel.plot(ends, factor * line.gradients[-1] * (ends / ends[-1]) ** slope, **SLOPE)
        sheet.legend.append(handle("numbers: fitted exponents of |S|", linestyle=""))
        sheet.legend.append(handle("slopes 1 and 3/2", **SLOPE))
    return sheet
