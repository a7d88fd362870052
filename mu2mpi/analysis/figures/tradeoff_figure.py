"""Loss and accuracy (or R^2) against privacy or any setting, a line for each of the others."""

import math
from collections.abc import Sequence
from typing import Any

from mu2mpi.analysis.aggregation import Layout, build_sections
from mu2mpi.analysis.figures._encoding import encode, measures
from mu2mpi.analysis.figures.figure import Figure, Page, Sheet, handle, log_ticks
from mu2mpi.analysis.setting_labels import PRIVACY, by_settings, is_settled, privacy_of, sort_key, varying
from mu2mpi.config.experiment_options import option_fields
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import register
from mu2mpi.results.reader import Summary

CROSS: dict[str, Any] = {"linestyle": "", "marker": "x", "markersize": 6.5, "markeredgewidth": 0.9}
# Level of runs without noise, which have no place on an axis of privacy
NOISELESS: dict[str, Any] = {"linestyle": ":", "linewidth": 0.9}
SPREAD = 0.4  # Part of the place of a name that lines share
PAPER = Layout(rows=("server", "rho"), columns=("machines",), values=("test_loss", "test_accuracy"))


@register
class TradeoffFigure(Figure):
    name = "tradeoff"
    needs = "test_loss"
    axes = tuple(option_fields())

    def is_reported(self, runs: Sequence[Summary]) -> bool:
        return len({run.experiment.rho for run in runs}) > 1

    def draw(self, runs: Sequence[Summary], page: Page, against: str | None = None) -> Sheet:
        """Draw loss and score against privacy, or the first number that varies, beside the paper's values."""
        against = against or _usual(runs)
        values = _values(runs, against)
        if not values:
            raise InputError("all runs are without noise (rho = inf): no privacy to set against loss")
        is_named = not _are_numbers(values)
        colour = ("machines",) if against in PRIVACY else (*PRIVACY, "machines")
        encoding = encode(runs, page, _pooled(runs, against), panel=(), colour=colour)
        if len(encoding.titles) == 1:
            sheet = Sheet(page, 1, 2, 2.2, sharex=True)
            panels = sheet.panels.T
        else:
            sheet = Sheet(page, 2, len(encoding.titles), 1.6, encoding.titles, sharex=True, sharey="row")
            panels = sheet.panels
        sheet.legend, levels = encoding.legend, []
        for entry in encoding.legend if is_named else []:
            entry.set_linestyle("" if entry.get_marker() else entry.get_linestyle())
        for k, (group, column, look) in enumerate(encoding.groups):
            places = [_value(run, against) for run in group.runs]
            if is_named:
                # No line joins names.
                beside, look = SPREAD * ((k + 0.5) / len(encoding.groups) - 0.5), look | {"linestyle": ""}
                places = [values.index(place) + beside for place in places]
            for panel, (name, _, factor) in zip(panels[:, column], measures(runs), strict=True):
                points = [(x, factor * run.row[name]) for x, run in zip(places, group.runs, strict=True)]
                if noisy := [point for point in points if math.isfinite(point[0])]:
                    sheet.draw_means(panel, *zip(*noisy, strict=True), **look)
                if level := [y for x, y in points if math.isinf(x)]:
                    levels.append(panel.axhline(sum(level) / len(level), color=look["color"], **NOISELESS))
        for row, (_, label, _) in zip(panels, measures(runs), strict=True):
            for panel in row:
                panel.set(xlabel=_label(runs, against, page), ylabel=label)
                if is_named:
                    names = [page.words.in_table(against, value) for value in values]
                    panel.set_xticks(range(len(values)), names)
                    panel.set_xlim(-0.5, len(values) - 0.5)
                elif not page.linear and values[0] > 0:
                    log_ticks(panel.xaxis, values)
        if panels.shape[1] == 1 and against in (*PAPER.places, "epsilon") and not is_named:
            sheet.legend += [handle("the paper's values", **CROSS)] * _draw_paper(panels[:, 0], runs, against)
        sheet.legend += [handle("without noise", **NOISELESS)] * bool(levels)
        return sheet


def _usual(runs: Sequence[Summary]) -> str:
    vary, (privacy, *_) = varying(runs), privacy_of(runs)
    numbers = (name for name in vary if _are_numbers(_values(runs, name)))
    return privacy if {*PRIVACY} & {*vary} else next(numbers, privacy)


def _are_numbers(values: Sequence[Any]) -> bool:
    return all(type(value) in (int, float) and math.isfinite(value) for value in values)


def _value(run: Summary, name: str) -> Any:
    value = run.settings[name]
    return run.figures["epsilon_exact"] if name == "epsilon" and value is None else value


def _values(runs: Sequence[Summary], name: str) -> list[Any]:
    """Return all values of a setting in the order of tables; of privacy without that of no noise."""
    values = sorted({_value(run, name) for run in runs}, key=lambda value: sort_key((value,)))
    return [value for value in values if name not in PRIVACY or math.isfinite(value)]


def _pooled(runs: Sequence[Summary], against: str) -> list[str]:
    """Return the settings that part no lines: what is across, and sizes that follow from it."""
    if against in PRIVACY:
        return [*PRIVACY, "delta"]
    rows, pooled = [run.settings for run in runs], [against]
    for size in ("rounds", "machines", "samples", "batch"):
        others = [name for name in varying(runs) if name not in (size, *pooled)]
        if size != against and is_settled(size, [against, *others], rows):
            pooled.append(size)
    return pooled


def _label(runs: Sequence[Summary], against: str, page: Page) -> str:
    name = page.words.name(against)
    if against == "rho":
        return f"privacy {name}  (less private →)"
    if against == "epsilon":
        exact = "exact " * any(run.experiment.epsilon is None for run in runs)
        deltas = ", ".join(f"{delta:g}" for delta in sorted({run.experiment.delta for run in runs}))
        return f"{exact}{name} at δ = {deltas}  (less private →)"
    return f"{against.replace('_', ' ')} {name}" if len(name) == 1 else name


def _draw_paper(panels: Any, runs: Sequence[Summary], against: str) -> bool:
    """Draw the paper's values of those cells that have runs, and return whether there are any."""
    members, is_drawn = by_settings(runs, PAPER.places), False
    for section in build_sections(runs, PAPER)[0] if {run.labels for run in runs} == {"classes"} else []:
        for (row, (machines, *_)), cell in section.cells.items():
            if cell.seeds and cell.paper:
                is_drawn, place = True, _value(members[(*row, machines)][0], against)
                for panel, name, factor in zip(panels, PAPER.values, (1.0, 100.0), strict=True):
                    panel.plot(place, factor * cell.paper[name], color="black", zorder=4, **CROSS)
    return is_drawn
