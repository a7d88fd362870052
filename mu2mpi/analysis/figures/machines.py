"""What single machines do and spend where they differ: rounds beside samples, and privacy beside budgets."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mu2mpi.analysis.figures.style import Figure, Page, canvas, handle, with_legend
from mu2mpi.config.together import OF_MACHINES, machines_differ
from mu2mpi.errors import InputError
from mu2mpi.results.reader import Summary, read_result

SHOWN = ("data", "server", "machines", "rounds", *OF_MACHINES)
MOST_NAMES, WIDEST = 12, 20.0
"""Machines that are named, and largest over smallest on a plain axis."""

DOTS: dict[str, Any] = {"linestyle": "", "marker": "o"}
LEVELS: dict[str, Any] = {"linewidth": 4, "alpha": 0.4, "solid_capstyle": "butt"}


def draw(runs: Sequence[Summary], page: Page) -> Figure:
    """Draw all machines, from that with the fewest samples to that with most.

    Above, in how many rounds each takes part beside how many samples it has; below, its rho beside what it
    may spend, or its epsilon where there is no rho. Of several runs, the first whose machines differ is
    drawn; its settings stand above.
    """
    differing = [run for run in runs if machines_differ(run.experiment)]
    run = differing[0] if differing else None
    accounts = None if run is None else read_result(run.path).accounts
    if run is None or accounts is None:
        raise InputError("in none of these runs machines differ, or are away (docs/guides/federations.md)")
    words = page.words.name
    figure, axes = canvas(page, 2, 1, 4.2, sharex=True)
    (above,), (below,) = axes
    of_rounds, of_privacy = page.theme.colours(2)
    order = np.lexsort((accounts.rho_allowed, accounts.rounds, accounts.samples))
    place = np.arange(len(order))

    def levels(panel: Any, values: Any, color: Any) -> None:
        panel.plot(place, values[order], color=color, drawstyle="steps-mid", **LEVELS)

    levels(above, accounts.samples, of_rounds)
    above.plot(place, accounts.rounds[order], color=of_rounds, **DOTS)
    above.set_ylabel("number")
    legend = [handle("samples", color=of_rounds, **LEVELS), handle("rounds", color=of_rounds, **DOTS)]
    if np.isnan(accounts.rho).any():
        below.plot(place, accounts.epsilon[order], color=of_privacy, **DOTS)
        below.set_ylabel(f"{words('epsilon')} at {words('delta')} = {run.experiment.delta:g}")
    else:
        levels(below, accounts.rho_allowed, of_privacy)
        below.plot(place, accounts.rho[order], color=of_privacy, **DOTS)
        below.set_ylabel(words("rho"))
        legend.append(handle("may spend", color=of_privacy, **LEVELS))
    legend.append(handle("spends", color=of_privacy, **DOTS))
    for panel in (above, below):
        _scale(panel)
    below.set_xlabel("machine, from the fewest samples to the most")
    if len(order) <= MOST_NAMES:
        below.set_xticks(place, [accounts.names[i] for i in order])
    else:
        below.set_xticks([])
    settings = {name: value for name, value in run.experiment.settings().items() if name in SHOWN}
    which = f" — the first of {len(differing)} runs" if len(differing) > 1 else ""
    figure.suptitle(f"{page.words.of(settings)}{which}", fontsize=9)
    return with_legend(figure, legend)


def _scale(panel: Any) -> None:
    """Begin at 0, or take logarithms where numbers are far apart."""
    values = np.concatenate([line.get_ydata() for line in panel.lines])
    positive = values[values > 0]
    if positive.size and positive.max() > WIDEST * positive.min():
        panel.set_yscale("log")
    else:
        panel.set_ylim(bottom=0)
