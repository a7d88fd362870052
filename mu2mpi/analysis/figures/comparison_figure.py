"""Methods at equal privacy: loss and score against gradients computed, and these against the samples.

A run of each method on each of several amounts of data |S| = n M is a point: the loss and score of its
output, and the gradients that all machines computed. How those grow with |S| is the method's complexity.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.analysis.aggregation import estimate, usual_values
from mu2mpi.analysis.figures._encoding import fitted_exponent, measures
from mu2mpi.analysis.figures.figure import INK, Figure, Page, Sheet, colours, handle
from mu2mpi.analysis.setting_labels import POOLED, grouped, listed, refusal
from mu2mpi.config.experiment_options import option_fields
from mu2mpi.core.registry import find, names, register
from mu2mpi.results.reader import Summary

MARKERS = "osD^vPX<>p*h"  # One for each method, as colours alone do not tell so many apart
SLOPE: dict[str, Any] = {"color": INK, "linewidth": 0.8, "linestyle": (0, (4, 2)), "alpha": 0.6}


# Settings in which methods may differ, beside those that a preset chose for each
OWN = ("method", "mechanism", "estimator", "query", "clip_norm", "eta_scale", "preset")
# Settings in which the runs of a method may differ; of rho, epsilon has the last word
SIZE = ("samples", "rounds", "batch", "rho")


@dataclass(frozen=True, eq=False)
class Line:
    """The runs of one method on several amounts of data."""

    name: str
    sizes: NDArray[np.float64]  # samples |S| of all machines, ascending
    gradients: NDArray[np.float64]  # means over seeds
    losses: NDArray[np.float64]  # means and deviations, as `scores`
    scores: NDArray[np.float64]
    exponent: float  # slope of gradients over sizes in logarithms; NaN of fewer than three sizes


def compare(runs: Sequence[Summary]) -> list[Line]:
    """Return a line for each method; InputError if runs differ in more than method, amount and seed."""
    claims = sorted({run.figures["epsilon_exact"] for run in runs})
    deltas = sorted({run.experiment.delta for run in runs})
    # Not every accountant meets the epsilon that was asked for.
    if len(deltas) > 1 or not claims[-1] <= 1.01 * claims[0]:
        epsilons = ", ".join(dict.fromkeys(f"{epsilon:.4g}" for epsilon in claims))
        at = f"epsilon = {epsilons} at delta = {', '.join(f'{delta:g}' for delta in deltas)}"
        raise refusal(f"methods are compared at equal privacy, and these runs have {at}", "epsilon")
    _check_same(runs, [n for n in option_fields() if n not in (*POOLED, *OWN, *SIZE)], "all runs")
    lines = []
    for title in dict.fromkeys(find("methods", name).title for name in names("methods")):
        members = [run for run in runs if run.experiment.chosen_method.title == title]
        if not members:
            continue
        _check_same(members, OWN, f"runs of {title}")
        points = grouped(members, ["samples_used"])
        sizes = np.array([point.settings["samples_used"] for point in points])
        gradients, losses, scores = (
            np.array([estimate([run.row[measured] for run in point.runs]) for point in points])
            for measured in ("gradient_evaluations", *usual_values(members)[:2])
        )
        means = gradients[:, 0]
        lines.append(Line(title, sizes, means, losses, scores, fitted_exponent(sizes, means)))
    return lines


def _check_same(runs: Sequence[Summary], names: Sequence[str], whose: str) -> None:
    # What a preset or the server chose may differ.
    rows = [(run.settings, run.own_settings) for run in runs]
    for name in names:
        values = {whole[name] for whole, own in rows if whole[name] is None or own[name] is not None}
        if len(values) > 1:
            raise refusal(f"{whose} need the same {name}, and here it is {listed(values)}", name)


@register
class ComparisonFigure(Figure):
    name = "comparison"
    needs = "test_loss"

    def is_reported(self, runs: Sequence[Summary]) -> bool:
        switches = ("method", "estimator", "query")
        return any(len({getattr(run.experiment, name) for run in runs}) > 1 for name in switches)

    def draw(self, runs: Sequence[Summary], page: Page, against: str | None = None) -> Sheet:
        """Draw loss, score, and, of several amounts of data, complexity with fitted exponents."""
        lines = compare(runs)
        grows = any(len(line.sizes) > 1 for line in lines)
        sheet = Sheet(page, 1, 2 + grows, 2.7)
        for panel, (_, label, _) in zip(sheet.panels[0], measures(runs), strict=False):
            panel.set(xscale="log", xlabel="gradients computed", ylabel=label)
        sheet.panels[0, 0].set_yscale("log")
        for k, (line, colour) in enumerate(zip(lines, colours(len(lines)), strict=True)):
            look = {"color": colour, "marker": MARKERS[k % len(MARKERS)], "linewidth": 1.0}
            look |= {"label": line.name, "linestyle": "-" if grows else ""}
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
