"""The two figures of the paper; both are readable without colour."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib.style
from accuracy import TRUST_MODES
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from mu2mpi.analysis.figures._theme import STYLE_SHEET

WIDTH_INCHES = 6.5
STYLES = {
    "trusted": {"color": "#08306b", "marker": "o", "linestyle": "-"},
    "shuffled": {"color": "#cc4c02", "marker": "^", "linestyle": "--", "markerfacecolor": "white"},
    "aggregated": {"color": "#6baed6", "marker": "s", "linestyle": ":"},
    "untrusted": {"color": "#737373", "marker": "D", "linestyle": "-."},
}
"""Lines of trust modes."""

LABELS = {
    "trusted": "trusted server",
    "shuffled": "shuffler",
    "aggregated": "secure aggregation",
    "untrusted": "untrusted server",
}


def draw_accuracy(measured: Mapping[str, Any], path: Path) -> None:
    """Draw accuracy against epsilon, one panel for each number of machines; bars are standard deviations."""
    machines, epsilons = measured["settings"]["machines"], measured["settings"]["epsilon"]
    with matplotlib.style.context([STYLE_SHEET], after_reset=True):
        figure = Figure(figsize=(WIDTH_INCHES, 1.95), layout="constrained")
        panels = figure.subplots(1, len(machines), sharey=True, squeeze=False)[0]
        for axes, m in zip(panels, machines, strict=True):
            for k, mode in enumerate(reversed(TRUST_MODES)):
                cells = [measured["private"][f"{m:g} {mode} {epsilon:g}"] for epsilon in epsilons]
                # Modes with equal noise have equal accuracies: shifted sideways, none hides another.
                places = [epsilon * 1.07 ** (k - 1.5) for epsilon in epsilons]
                axes.errorbar(
                    places,
                    [cell["mean"] for cell in cells],
                    [cell["std"] for cell in cells],
                    capsize=2,
                    elinewidth=0.8,
                    label=LABELS[mode],
                    **STYLES[mode],
                )
            exact = measured["without_noise"][f"{m:g}"]["mean"]
            axes.axhline(exact, color="black", linewidth=0.8, linestyle=(0, (1, 3)), label="no noise")
            axes.set(xscale="log", xlabel="ε", title=f"{m:g} machines")
            axes.xaxis.set(major_locator=FixedLocator(epsilons), minor_locator=NullLocator())
            axes.xaxis.set_major_formatter(FuncFormatter(lambda epsilon, _: f"{epsilon:g}"))
        panels[0].set_ylabel("test accuracy in %")
        panels[0].legend(loc="lower right", labelspacing=0.25)
        figure.savefig(path, dpi=300)


def draw_speed(measured: Mapping[str, Any], path: Path) -> None:
    """Draw the ratio of times of each task, and the ratios of single pairs of runs as ticks."""
    tasks = list(measured["tasks"].values())
    with matplotlib.style.context([STYLE_SHEET], after_reset=True):
        figure = Figure(figsize=(WIDTH_INCHES, 1.6), layout="constrained")
        axes = figure.subplots()
        places = range(len(tasks), 0, -1)
        medians = [task["ratio"] for task in tasks]
        # Bars start at 1, equal speed, and grow to the left where the other package is faster.
        axes.barh(places, [m - 1 for m in medians], left=1, height=0.6, color="#9ecae1")
        for place, task in zip(places, tasks, strict=True):
            axes.plot(task["ratios"], [place] * len(task["ratios"]), "|", color="black", markersize=5)
            axes.annotate(
                f"{task['ratio']:.2g}",
                (max(1, *task["ratios"]), place),
                xytext=(5, 0),
                textcoords="offset points",
                va="center",
            )
        labels = [f"{task['label']} ({task['rival']})" for task in tasks]
        axes.set_yticks(places, labels)
        largest = max(2.0, *(ratio for task in tasks for ratio in task["ratios"]))
        smallest = min(0.8, *(ratio for task in tasks for ratio in task["ratios"]))
        axes.set(xscale="log", xlim=(smallest * 0.9, largest * 1.5))
        ticks = [
            tick
            for tick in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500)
            if smallest <= tick <= largest
        ]
        axes.xaxis.set(major_locator=FixedLocator(ticks), minor_locator=NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda ratio, _: f"{ratio:g}"))
        axes.set_xlabel("time of the other package / time of mu2mpi")
        axes.axvline(1, color="black", linewidth=0.8)
        axes.grid(visible=False, axis="y")
        figure.savefig(path, dpi=300)
