"""Losses against one quantity, a line for each choice of settings, with fitted exponents in the legend."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mu2mpi.analysis.cells import estimate
from mu2mpi.analysis.figures.curves import (
    Encoding,
    bars_handle,
    draw_means,
    key_of,
    loss_words,
)
from mu2mpi.analysis.figures.style import Figure, Page, canvas, handle, with_legend
from mu2mpi.analysis.figures.ticks import plain_log_ticks
from mu2mpi.analysis.groups import Group
from mu2mpi.analysis.words import told_privacy
from mu2mpi.errors import InputError
from mu2mpi.results.reader import Summary

MOST_PANELS, FEWEST = 3, 3
"""Panels, and points that make an exponent."""


@dataclass(frozen=True)
class Across:
    """What is on the horizontal axis: its value for a run, what the axis says, and the legend."""

    of: Callable[[Summary], float]
    words: str
    symbol: str


def draw_lines(
    encoding: Encoding,
    own: Sequence[str],
    panels: dict[str, list[Group]],
    across: Across,
    words: Callable[[Group, Page], str],
    page: Page,
) -> Figure:
    """Draw excess losses where they are known, and else test losses; excess losses with their exponents.

    Groups that agree in the settings `own` have one look, that of the encoding, and are called by `words`.
    """
    looks = {key_of(group, own): (look, words(group, page)) for group, _, look in encoding.groups}
    exponents = {key: ["–"] * len(panels) for key in looks}
    figure, axes = canvas(page, 1, len(panels), 3.6, list(panels))
    barred = numbered = False
    for k, (panel, here) in enumerate(zip(axes[0], panels.values(), strict=True)):
        name, label = _measured(here)
        for group in here:
            look, _ = looks[key_of(group, own)]
            points: dict[float, list[float]] = {}
            for run in sorted(group.runs, key=across.of):
                points.setdefault(across.of(run), []).append(run.row[name])
            found = [estimate(losses) for losses in points.values()]
            barred |= draw_means(panel, [*points], found, 1.0, **look)
            means = np.array([point.mean for point in found])
            if name == "excess_loss" and len(means) >= FEWEST and np.all(means > 0):
                slope = np.polyfit(np.log([*points]), np.log(means), 1)[0]
                exponents[key_of(group, own)][k] = f"{slope:z.2f}".replace("-", "−")
                numbered = True
                panel.set_yscale("log")
        panel.set(xscale="log", xlabel=across.words, ylabel=label)
        plain_log_ticks(panel.xaxis, sorted({across.of(run) for group in here for run in group.runs}))
    lines = [
        handle(f"{said}: {' | '.join(exponents[key])}" if numbered else said, **look)
        for key, (look, said) in looks.items()
    ]
    legend = [*lines, *[bars_handle(page)] * barred]
    if numbered:
        where = ", panel by panel" * (len(panels) > 1)
        legend.append(handle(f"numbers: fitted exponents of {across.symbol}{where}", linestyle=""))
    return with_legend(figure, legend)


def by_panel(
    groups: Sequence[Group], names: Sequence[str], page: Page, always: Sequence[str] = ()
) -> dict[str, list[Group]]:
    """Return the groups of each panel by its title: the data, and in what else panels of these differ."""
    found: dict[str, list[Group]] = {}
    for group in groups:
        data = group.runs[0].experiment.data
        alike = [g for g in groups if g.runs[0].experiment.data == data]
        differ = [name for name in names if len({g.settings[name] for g in alike}) > 1]
        shown = {"data": data, **{name: group.settings[name] for name in (*always, *differ)}}
        title = "\n".join(page.words.of({name: value}) for name, value in told_privacy(shown).items())
        found.setdefault(title, []).append(group)
    if len(found) > MOST_PANELS:
        words = "; ".join(found).replace("\n", ", ")
        raise InputError(
            f"these runs make {len(found)} panels ({words}), too many for a figure; choose some, "
            "for example with --where rho=..."
        )
    return found


def _measured(groups: Sequence[Group]) -> tuple[str, str]:
    """Return which loss is known of all runs of a panel, and what its axis says."""
    runs = [run for group in groups for run in group.runs]
    known = all(math.isfinite(run.figures.get("excess_loss", math.nan)) for run in runs)
    return ("excess_loss", loss_words(runs, "excess loss")) if known else ("test_loss", loss_words(runs))
