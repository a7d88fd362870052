"""Losses against one quantity, a line for each choice of settings, with fitted exponents beside them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mu2mpi.analysis.cells import estimate
from mu2mpi.analysis.figures.curves import (
    Encoding,
    bars_handle,
    draw_means,
    key_of,
    loss_words,
    plain_log_ticks,
)
from mu2mpi.analysis.figures.style import Axes, Figure, Page, canvas, handle, with_legend
from mu2mpi.analysis.groups import Group
from mu2mpi.errors import InputError
from mu2mpi.results.reader import Summary

MOST_PANELS, FEWEST = 3, 3
"""Panels with room for numbers beside each, and points that make an exponent."""

APART = 0.07
"""Of the height of a panel, between the numbers beside its lines."""


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
    figure, axes = canvas(page, 1, len(panels), 3.6, list(panels))
    barred = numbered = False
    for panel, here in zip(axes[0], panels.values(), strict=True):
        name, label = _measured(here)
        ends = []
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
                ends.append((float(means[-1]), f"{slope:.2f}".replace("-", "−"), look["color"]))
        panel.set(xscale="log", xlabel=across.words, ylabel=label)
        plain_log_ticks(panel.xaxis, sorted({across.of(run) for group in here for run in group.runs}))
        if ends:
            numbered = True
            panel.set_yscale("log")
            plain_log_ticks(panel.yaxis, _round_numbers(*panel.get_ylim()))
            _write_beside(panel, sorted(ends, key=lambda end: end[0]))
    lines = [handle(said, **look) for look, said in looks.values()]
    exponents = handle(f"numbers: fitted exponents of {across.symbol}", linestyle="")
    return with_legend(figure, [*lines, *[bars_handle(page)] * barred, *[exponents] * numbered])


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
        title = "\n".join(page.words.of({name: value}) for name, value in shown.items())
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


def _round_numbers(low: float, high: float) -> list[float]:
    """Return the numbers of one digit in a range; of a narrow one evenly spread ones, of a wide one fewer."""
    if high < 2 * low:
        from matplotlib.ticker import MaxNLocator

        return [n for n in MaxNLocator(5).tick_values(low, high) if low <= n <= high]
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)))
    digits = (1, 3) if high > 50 * low else (1, 2, 3, 5) if high > 5 * low else range(1, 10)
    return [n for k in powers for d in digits if low <= (n := float(f"{d}e{k}")) <= high]


def _write_beside(panel: Axes, ends: Sequence[tuple[float, str, Any]]) -> None:
    """Write a number where each line ends, from the lowest up, so far apart that none covers another."""
    low, high = panel.get_ylim()
    heights = np.array([math.log(y / low) / math.log(high / low) for y, _, _ in ends])
    steps = APART * np.arange(len(ends))
    # Up from the lowest, and down from the highest: what lies between the two is as far apart.
    up = np.maximum.accumulate(heights - steps)
    down = np.minimum.accumulate((heights - steps)[::-1])[::-1]
    placed = np.maximum((up + down) / 2, 0) + steps
    for height, (_, text, colour) in zip(placed, ends, strict=True):
        place: dict[str, Any] = {"transform": panel.transAxes, "va": "center", "fontsize": 6.5}
        panel.text(1.01, height, text, color=colour, **place)
