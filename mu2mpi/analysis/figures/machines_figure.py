"""Samples, rounds and privacy budget of each machine, for runs with unequal machines."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mu2mpi.analysis.figures.figure import (
    MAX_DRAWN_MACHINES,
    Figure,
    FigureOptions,
    Layout,
    legend_entry,
    palette,
    shorten_name,
)
from mu2mpi.config.experiment_options import PER_MACHINE_OPTIONS
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import register
from mu2mpi.results.reader import RunSummary, read_result

TITLE_SETTINGS = ("data", "server", "machines", "rounds", *PER_MACHINE_OPTIONS)
MAX_TICK_LABELS = 12  # machines with tick labels
MAX_LINEAR_AXIS_RATIO = 20.0  # largest over smallest value on a linear axis


@register
class MachinesFigure(Figure):
    name = "machines"

    def draw(self, runs: Sequence[RunSummary], options: FigureOptions, x_axis: str | None = None) -> Layout:
        """Draw samples and rounds above rho, for the machines of the first run with unequal machines.

        Of more than `MAX_DRAWN_MACHINES` machines, the quantiles of each quantity are drawn.
        """
        differing = [run for run in runs if run.experiment.has_unequal_machines]
        accounts = read_result(differing[0].path).accounts if differing else None
        if accounts is None:
            raise InputError("no run has unequal machines. See docs/guides/federations.md")
        run, labels = differing[0], options.labels.name
        layout = Layout(options, 2, 1, 1.5, sharex=True)
        (upper,), (lower,) = layout.panels
        order = np.lexsort((accounts.rho_budget, accounts.rounds, accounts.samples))
        has_quantiles, quantiles = len(order) > MAX_DRAWN_MACHINES, np.linspace(0, 1, MAX_DRAWN_MACHINES + 1)
        levels: dict[str, Any] = {"linewidth": 4, "alpha": 0.4, "solid_capstyle": "butt"}
        dots = {"linestyle": "", "marker": "o"}
        series: list[Any] = [(upper, "samples", accounts.samples, levels)]
        series.append((upper, "rounds", accounts.rounds, dots))
        upper.set_ylabel("number")
        if np.isnan(accounts.rho).any():
            series.append((lower, "spends", accounts.epsilon, dots))
            lower.set_ylabel(f"{labels('epsilon')} at {labels('delta')} = {run.experiment.delta:g}")
        else:
            series.append((lower, "may spend", accounts.rho_budget, levels))
            series.append((lower, "spends", accounts.rho, dots))
            lower.set_ylabel(labels("rho"))
        for panel, label, values, style in series:
            style = {"color": palette(2)[panel is lower], **style}
            values = np.quantile(values, quantiles, method="nearest") if has_quantiles else values[order]
            panel.plot(values, drawstyle="steps-mid", **style)
            layout.legend.append(legend_entry(label, **style))
        for panel in (upper, lower):
            positive = np.concatenate([line.get_ydata()[line.get_ydata() > 0] for line in panel.lines])
            if positive.size and positive.max() > MAX_LINEAR_AXIS_RATIO * positive.min():
                panel.set_yscale("log")
            else:
                panel.set_ylim(bottom=0)
        if has_quantiles:
            lower.set_xlabel(f"{len(order):,} machines (%), sorted by each quantity")
        else:
            lower.set_xlabel("machine, from the fewest samples to the most")
            names = [accounts.machine_names[i] for i in order] if len(order) <= MAX_TICK_LABELS else []
            lower.set_xticks(range(len(names)), map(shorten_name, names))
        settings = {name: v for name, v in run.experiment.settings().items() if name in TITLE_SETTINGS}
        suffix = f" — the first of {len(differing)} runs" if len(differing) > 1 else ""
        layout.title = f"{options.labels.settings(settings)}{suffix}"
        return layout
