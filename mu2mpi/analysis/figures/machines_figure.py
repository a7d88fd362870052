"""Samples, rounds and privacy of each machine, where machines differ or are away."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mu2mpi.analysis.figures.figure import Figure, Page, Sheet, colours, handle
from mu2mpi.config.experiment_options import OF_MACHINES
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import register
from mu2mpi.results.reader import Summary, read_result

SHOWN = ("data", "server", "machines", "rounds", *OF_MACHINES)

MAX_NAMES, MAX_RATIO = 12, 20.0  # Machines that are named, and largest over smallest number on a linear axis


@register
class MachinesFigure(Figure):
    name = "machines"

    def draw(self, runs: Sequence[Summary], page: Page, against: str | None = None) -> Sheet:
        """Draw rounds and samples of the machines of the first run in which they differ, above their rho."""
        differing = [run for run in runs if run.experiment.machines_differ]
        accounts = read_result(differing[0].path).accounts if differing else None
        if accounts is None:
            raise InputError("no run has machines that differ or are away (docs/guides/federations.md)")
        run, words = differing[0], page.words.name
        sheet = Sheet(page, 2, 1, 1.5, sharex=True)
        (above,), (below,) = sheet.panels
        order = np.lexsort((accounts.rho_allowed, accounts.rounds, accounts.samples))
        levels: dict[str, Any] = {"linewidth": 4, "alpha": 0.4, "solid_capstyle": "butt"}
        dots = {"linestyle": "", "marker": "o"}
        shown: list[Any] = [
            (above, "samples", accounts.samples, levels),
            (above, "rounds", accounts.rounds, dots),
        ]
        above.set_ylabel("number")
        if np.isnan(accounts.rho).any():
            shown.append((below, "spends", accounts.epsilon, dots))
            below.set_ylabel(f"{words('epsilon')} at {words('delta')} = {run.experiment.delta:g}")
        else:
            shown.append((below, "may spend", accounts.rho_allowed, levels))
            shown.append((below, "spends", accounts.rho, dots))
            below.set_ylabel(words("rho"))
        for panel, label, values, look in shown:
            look = {"color": colours(2)[panel is below], **look}
            panel.plot(values[order], drawstyle="steps-mid", **look)
            sheet.legend.append(handle(label, **look))
        for panel in (above, below):
            positive = np.concatenate([line.get_ydata()[line.get_ydata() > 0] for line in panel.lines])
            if positive.size and positive.max() > MAX_RATIO * positive.min():
                panel.set_yscale("log")
            else:
                panel.set_ylim(bottom=0)
        below.set_xlabel("machine, from the fewest samples to the most")
        names = [accounts.names[i] for i in order] if len(order) <= MAX_NAMES else []
        below.set_xticks(range(len(names)), names)
        settings = {name: value for name, value in run.experiment.settings().items() if name in SHOWN}
        which = f" — the first of {len(differing)} runs" if len(differing) > 1 else ""
        sheet.title = f"{page.words.of(settings)}{which}"
        return sheet
