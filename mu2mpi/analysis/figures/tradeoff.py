"""Loss and accuracy (or R^2) against privacy or any setting, a line for each of the others."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mu2mpi.analysis.cells import Layout, build_sections
from mu2mpi.analysis.figures._lines import encode, measures
from mu2mpi.analysis.figures._page import Page
from mu2mpi.analysis.figures._sheet import Sheet, handle, log_ticks
from mu2mpi.analysis.settings import PRIVACY, by_settings, is_settled, privacy_of, settings_of, varying
from mu2mpi.config.options import option_fields
from mu2mpi.errors import InputError
from mu2mpi.results.reader import Summary

AGAINST = tuple(option_fields())
NEEDS = "test_loss"

CROSS: dict[str, Any] = {"linestyle": "", "marker": "x", "markersize": 6.5, "markeredgewidth": 0.9}
NOISELESS: dict[str, Any] = {"linestyle": ":", "linewidth": 0.9}
"""Level of runs without noise, which have no place on an axis of privacy."""

SPREAD = 0.4
"""Part of the place of a name that lines share."""

FOLLOWING = ("rounds", "machines", "samples", "batch")
"""Settings that often change with another, and part no lines then."""

SEEDS = ("seed", "data_seed", "participation_seed")

PAPER = Layout(rows=("server", "rho"), columns=("machines",), values=("test_loss", "test_accuracy"))


@dataclass(frozen=True)
class Axis:
    """Horizontal axis: place of each run, ticks, their names unless they are numbers, and `apart`."""

    place: Callable[[Summary], float]
    """Infinite for the privacy of a run without noise."""
    label: str
    ticks: list[float]
    apart: tuple[str, ...]
    """Settings that part no lines."""
    names: list[str] | None = None


def is_reported(runs: Sequence[Summary]) -> bool:
    """Return whether a report of these runs has this figure."""
    return len({run.experiment.rho for run in runs}) > 1


def draw(runs: Sequence[Summary], page: Page, against: str = "") -> Sheet:
    """Draw loss and score over what is across, and the paper's values where the settings are the paper's.

    The default is privacy as it was set, or the first other number that varies where privacy does not.
    """
    against = against or _usual(runs)
    axis = _axis(runs, against, page)
    if not axis.ticks:
        raise InputError("all runs are without noise (rho = inf), so there is no privacy to set against loss")
    colour = ("machines",) if against in PRIVACY else (*PRIVACY, "machines")
    encoding = encode(runs, page, axis.apart, panel=(), colour=colour)
    columns = len(encoding.titles)
    if columns == 1:
        sheet = Sheet(page, 1, 2, 2.2, sharex=True)
        panels = sheet.panels.T
    else:
        sheet = Sheet(page, 2, columns, 1.6, encoding.titles, sharex=True, sharey="row")
        panels = sheet.panels
    sheet.legend = encoding.legend
    if axis.names is not None:
        # No line joins names.
        for look in [look for _, _, look in encoding.groups]:
            look["linestyle"] = ""
        for entry in encoding.legend:
            entry.set_linestyle("" if entry.get_marker() else entry.get_linestyle())
    is_noiseless = False
    for k, (group, column, look) in enumerate(encoding.groups):
        noisy = [run for run in group.runs if math.isfinite(axis.place(run))]
        levels = [run.row for run in group.runs if math.isinf(axis.place(run))]
        is_noiseless |= bool(levels)
        beside = 0.0 if axis.names is None else SPREAD * ((k + 0.5) / len(encoding.groups) - 0.5)
        for panel, (name, _, factor) in zip(panels[:, column], measures(runs), strict=True):
            if noisy:
                places = [axis.place(run) + beside for run in noisy]
                sheet.draw_means(panel, places, [factor * run.row[name] for run in noisy], **look)
            if levels:
                level = factor * sum(row[name] for row in levels) / len(levels)
                panel.axhline(level, color=look["color"], **NOISELESS)
    for row, (_, label, _) in zip(panels, measures(runs), strict=True):
        for panel in row:
            panel.set(xlabel=axis.label, ylabel=label)
            _scale(panel, axis, page, against)
    if columns == 1 and against in (*PAPER.places, "epsilon") and _draw_paper(panels[:, 0], runs, axis):
        sheet.legend.append(handle("the paper's values", **CROSS))
    sheet.legend += [handle("without noise", **NOISELESS)] * is_noiseless
    return sheet


def _usual(runs: Sequence[Summary]) -> str:
    vary, privacy = varying(runs), privacy_of(runs)[0]
    if {*PRIVACY} & {*vary}:
        return privacy
    return next((name for name in vary if _are_numbers(_values(runs, name))), privacy)


def _axis(runs: Sequence[Summary], against: str, page: Page) -> Axis:
    name = page.words.name(against)
    if against in PRIVACY:

        def place(run: Summary) -> float:
            if against == "rho":
                return run.experiment.rho
            return run.figures["epsilon_exact"] if run.experiment.epsilon is None else run.experiment.epsilon

        label = f"privacy {name}"
        if against == "epsilon":
            exact = "exact " * any(run.experiment.epsilon is None for run in runs)
            deltas = ", ".join(f"{delta:g}" for delta in sorted({run.experiment.delta for run in runs}))
            label = f"{exact}{name} at δ = {deltas}"
        known = sorted({p for run in runs if math.isfinite(p := place(run))})
        return Axis(place, f"{label}  (less private →)", known, (*PRIVACY, "delta"))
    values, rows = _values(runs, against), [settings_of(run) for run in runs]
    others = [other for other in varying(runs) if other != against]
    apart = [against]
    for size in FOLLOWING:
        if size in others and is_settled(size, [against, *(n for n in others if n != size)], rows):
            others.remove(size)
            apart.append(size)
    if _are_numbers(values):
        label = f"{against.replace('_', ' ')} {name}" if len(name) == 1 else name
        return Axis(lambda run: float(settings_of(run)[against]), label, [*map(float, values)], tuple(apart))
    names = [page.words.in_table(against, value) for value in values]
    ticks = [*map(float, range(len(values)))]
    return Axis(lambda run: ticks[values.index(settings_of(run)[against])], name, ticks, tuple(apart), names)


def _values(runs: Sequence[Summary], name: str) -> list[Any]:
    return [value for (value,) in by_settings(runs, [name])]


def _are_numbers(values: Sequence[Any]) -> bool:
    return all(type(value) in (int, float) and math.isfinite(value) for value in values)


def _scale(panel: Any, axis: Axis, page: Page, against: str) -> None:
    """Make the horizontal axis logarithmic for numbers above 0, unless they only tell apart, as seeds do."""
    if axis.names is not None:
        panel.set_xticks(axis.ticks, axis.names)
        panel.set_xlim(-0.5, len(axis.names) - 0.5)
    elif against in SEEDS:
        panel.locator_params(axis="x", integer=True)
    elif not page.linear and axis.ticks[0] > 0:
        log_ticks(panel.xaxis, axis.ticks)


def _draw_paper(panels: Sequence[Any], runs: Sequence[Summary], axis: Axis) -> bool:
    """Draw the paper's values of those cells that have runs, and return whether there are any."""
    members, is_drawn = by_settings(runs, PAPER.places), False
    for section in build_sections(runs, PAPER)[0] if {run.labels for run in runs} == {"classes"} else []:
        for (row, (machines, *_)), cell in section.cells.items():
            if cell.seeds and cell.paper:
                is_drawn, place = True, axis.place(members[(*row, machines)][0])
                for panel, name, factor in zip(panels, PAPER.values, (1.0, 100.0), strict=True):
                    panel.plot(place, factor * cell.paper[name], color="black", zorder=4, **CROSS)
    return is_drawn
