"""Comparison of methods at equal privacy: loss, score and gradient complexity.

Each point is a method on one sample size |S| = n M: loss and score of its output against the gradients
computed by all machines. The growth of the number of gradients with |S| is the method's complexity.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mu2mpi.analysis.aggregation import check_value_names, default_measurements, mean_and_std
from mu2mpi.analysis.figures._encoding import fit_exponent, measured_y_axes
from mu2mpi.analysis.figures.figure import FOREGROUND, Figure, FigureOptions, Layout, legend_entry, palette
from mu2mpi.analysis.setting_labels import AVERAGED_SETTINGS, group_runs, join_values, selection_error
from mu2mpi.config.experiment_options import option_fields
from mu2mpi.core.arrays import FloatArray
from mu2mpi.core.registry import known_names, lookup, register
from mu2mpi.results.reader import RunSummary

METHOD_MARKERS = "osD^vPX<>p*h"  # one per method, which colours alone do not distinguish
SLOPE_STYLE: dict[str, Any] = {"color": FOREGROUND, "linewidth": 0.8, "linestyle": (0, (4, 2)), "alpha": 0.6}
# Settings in which methods may differ, beside those that a preset chose
METHOD_SETTINGS = ("method", "mechanism", "estimator", "query", "clip_norm", "eta_scale", "preset")
# Settings in which runs of one method may differ; epsilon decides whether rho may
SAMPLE_SIZE_SETTINGS = ("samples", "rounds", "batch", "rho")


@dataclass(frozen=True, eq=False)
class MethodCurve:
    """Runs of one method on several sample sizes."""

    name: str
    sample_sizes: FloatArray  # samples |S| of all machines, ascending; shape (sizes,)
    gradient_counts: FloatArray  # means over seeds; shape (sizes,)
    values: FloatArray  # mean and standard deviation of each value; shape (values, sizes, 2)
    exponent: float  # fitted exponent of |S|; NaN for fewer than three sizes


def method_curves(runs: Sequence[RunSummary], names: Sequence[str] = ()) -> list[MethodCurve]:
    """Return one curve per method of the values of these names, by default of the loss and the score.

    Raises InputError if runs differ in more than method, samples |S| and seed.
    """
    claims = sorted({run.measurements["epsilon_exact"] for run in runs})
    deltas = sorted({run.experiment.delta for run in runs})
    # Some accountants only come close to the requested epsilon.
    if len(deltas) > 1 or not claims[-1] <= 1.01 * claims[0]:
        epsilons = ", ".join(dict.fromkeys(f"{epsilon:.4g}" for epsilon in claims))
        text = f"epsilon = {epsilons} at delta = {', '.join(f'{delta:g}' for delta in deltas)}"
        problem = f"methods are compared at equal privacy, but these runs have {text}"
        raise selection_error(problem, "epsilon")
    may_differ = {*AVERAGED_SETTINGS, *METHOD_SETTINGS, *SAMPLE_SIZE_SETTINGS}
    _check_equal_settings(runs, [name for name in option_fields() if name not in may_differ], "all runs")
    curves = []
    for title in dict.fromkeys(lookup("methods", name).title for name in known_names("methods")):
        of_method = [run for run in runs if run.experiment.chosen_method.title == title]
        if not of_method:
            continue
        _check_equal_settings(of_method, METHOD_SETTINGS, f"runs of {title}")
        points = group_runs(of_method, ["samples_used"])
        sizes = np.array([point.settings["samples_used"] for point in points])
        gradient_counts, *values = (
            np.array(
                [mean_and_std([run.table_row.get(column, np.nan) for run in point.runs]) for point in points]
            )
            for column in ("gradient_evaluations", *(names or default_measurements(of_method)))
        )
        means = gradient_counts[:, 0]
        curves.append(MethodCurve(title, sizes, means, np.array(values), fit_exponent(sizes, means)))
    return curves


def _check_equal_settings(runs: Sequence[RunSummary], names: Sequence[str], description: str) -> None:
    # Values that a preset or the server chose may differ.
    rows = [(run.settings, run.independent_settings) for run in runs]
    for name in names:
        values = {used[name] for used, own in rows if used[name] is None or own[name] is not None}
        if len(values) > 1:
            raise selection_error(f"{description} must have the same {name}, got {join_values(values)}", name)


@register
class ComparisonFigure(Figure):
    name = "comparison"
    required_column = "test_loss"
    has_value_panels = True
    report_settings = ("method", "estimator", "query")

    def draw(self, runs: Sequence[RunSummary], options: FigureOptions, x_axis: str | None = None) -> Layout:
        """Draw loss and score, and for several sample sizes the complexity with fitted exponents."""
        check_value_names(runs, options.values)
        lines, y_axes = method_curves(runs, options.values), measured_y_axes(runs, options)
        grows = any(len(line.sample_sizes) > 1 for line in lines)
        layout = Layout(options, 1, len(y_axes) + grows, 2.7)
        for panel, (name, label, _) in zip(layout.panels[0], y_axes, strict=False):
            panel.set(xscale="log", xlabel="gradients computed", ylabel=label)
            panel.set_yscale("log" if name.endswith("_loss") else "linear")
        for k, (line, colour) in enumerate(zip(lines, palette(len(lines)), strict=True)):
            style = {"color": colour, "marker": METHOD_MARKERS[k % len(METHOD_MARKERS)], "linewidth": 1.0}
            style |= {"label": line.name, "linestyle": "-" if grows else ""}
            for panel, values, (_, _, factor) in zip(layout.panels[0], line.values, y_axes, strict=False):
                layout.draw_error_bars(panel, line.gradient_counts, *(factor * values.T), **style)
            exponent = "" if math.isnan(line.exponent) else f": {line.exponent:.2f}"
            layout.legend.append(legend_entry(f"{line.name}{exponent}", **style))
            if grows:
                layout.panels[0, -1].plot(line.sample_sizes, line.gradient_counts, **style)
        if grows:
            panel = layout.panels[0, -1]
            panel.set(xscale="log", yscale="log", xlabel="samples |S| = nM", ylabel="gradients computed")
        with_exponent = [line for line in lines if not math.isnan(line.exponent)]
        if fitted := sorted(with_exponent, key=lambda line: line.gradient_counts[-1]):
            # The theorems' exponents, next to the cheapest and the most expensive method.
            for slope, line, factor in ((1.0, fitted[0], 1 / 1.8), (1.5, fitted[-1], 1.8)):
                ends = line.sample_sizes[[0, -1]]
                y = factor * line.gradient_counts[-1] * (ends / ends[-1]) ** slope
                panel.plot(ends, y, **SLOPE_STYLE)
            layout.legend.append(legend_entry("numbers: fitted exponents of |S|", linestyle=""))
            layout.legend.append(legend_entry("slopes 1 and 3/2", **SLOPE_STYLE))
        return layout
