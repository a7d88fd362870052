"""Excess loss against n, M, d and rho, with exponents beside the theorem's."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from mu2mpi.analysis.figures._lines import encode_groups, loss_label
from mu2mpi.analysis.figures._page import INK, Page
from mu2mpi.analysis.figures._sheet import DASHES, Sheet, handle, log_ticks
from mu2mpi.analysis.rates import AXES, MIN_POINTS, Axis, Rate, find_rates
from mu2mpi.analysis.settings import Group, Key
from mu2mpi.errors import InputError
from mu2mpi.results.reader import Summary

REGIMES = {False: "without noise, where both servers are one algorithm", True: "private"}

SHAPES = {"o": "●", "s": "■", "D": "◆", "^": "▲", "v": "▼"}
"""Letters that look like markers."""

LINE = 0.07
"""Height of a line of text, as a share of a panel."""

BOUND: dict[str, Any] = {"linestyle": ":", "linewidth": 1.0}
PROBLEMS: dict[str, Any] = {"linewidth": 0.5, "alpha": 0.4}

ACROSS = ("epsilon", *(axis.setting for axis in AXES))


def draw(runs: Sequence[Summary], page: Page) -> Sheet:
    """Draw a row of panels for each regime, a column for each axis."""
    rates = find_rates(runs)
    if not rates:
        raise InputError(
            "rates need measured excess losses of runs that differ in rounds, machines, classes or rho alone "
            f"and have at least {MIN_POINTS} values of it, such as those of jobs/rates.toml"
        )
    regimes = sorted({rate.is_private for rate in rates})
    axes = [axis for axis in AXES if any(rate.axis == axis for rate in rates)]
    names = [name for name in rates[0].settings if name not in (*ACROSS, "server")]
    differ = [name for name in names if len({rate.settings[name] for rate in rates}) > 1]
    if len({tuple(rate.settings[name] for name in differ) for rate in rates}) > len(DASHES):
        raise InputError(
            f"these runs differ in too much for one figure; choose some, as --where {differ[0]}=..."
        )
    # In the legend, lines are told apart; in the data, all settings are told.
    looks: dict[Key, tuple[Rate, dict[str, Any]]] = {}
    lines: dict[tuple[bool, Axis, Key], Rate] = {}
    for rate, (_, _, look) in zip(
        rates, encode_groups(rates, page, (), ("server",), differ).groups, strict=True
    ):
        looks.setdefault(_key(rate), (rate, look))
        other = lines.setdefault((rate.is_private, rate.axis, _key(rate)), rate)
        if other is not rate:
            names = [name for name in rate.settings if rate.settings[name] != other.settings[name]]
            raise InputError(
                f"lines against {rate.axis.symbol} differ in {', '.join(names)} alone, too much for one "
                f"figure; choose some, for example with --where {names[0]}=..."
            )
    sheet = Sheet(page, len(regimes), len(axes), 2.4, sharey="row")
    for row, regime in zip(sheet.panels, regimes, strict=True):
        by_axis = [[r for r in rates if r.is_private == regime and r.axis == axis] for axis in axes]
        values = [v for of in by_axis for r in of for curve in (r.bounds, *r.means) for v in curve if v > 0]
        low, high = min(values) / 1.3, max(values) * 1.3
        room = LINE * (1 + max(map(len, by_axis)))
        for panel, axis, here in zip(row, axes, by_axis, strict=True):
            if not here:
                panel.set_axis_off()
                continue
            if sheet.is_stacked or axis == axes[0]:
                panel.set_title(REGIMES[regime])
            _draw_panel(panel, here, {key: look for key, (_, look) in looks.items()})
            # The text below the lines has a share of the height.
            panel.set_ylim(low * (low / high) ** (room / (1 - room)), high)
            panel.set(xlabel=f"{axis.symbol}  ({axis.words})", ylabel=loss_label(runs, "excess loss"))
    told = ["server", *differ] if len({rate.settings["server"] for rate in rates}) > 1 else differ
    for rate, look in looks.values():
        words = page.words.of({name: rate.settings[name] for name in told}) if told else "measured"
        sheet.legend.append(handle(words, **look))
    sheet.legend.append(handle("the theorem's bound", **BOUND))
    sheet.legend += [handle("single problems", **PROBLEMS)] * any(len(rate.means) > 1 for rate in rates)
    sheet.legend.append(handle("fitted exponent [95 %] (theorem's)", linestyle="", marker="o", color=INK))
    left = len(runs) - len({id(run) for rate in rates for run in rate.runs})
    remark = f"{left:,} of {len(runs):,} runs make no line of {MIN_POINTS} points"
    sheet.legend += [handle(remark, linestyle="")] * (left > 0)
    return sheet


def _key(rate: Group) -> Key:
    """Return what tells a line from another in its panel."""
    return tuple(value for name, value in rate.settings.items() if name not in ACROSS)


def _draw_panel(panel: Any, rates: Sequence[Rate], looks: dict[Key, dict[str, Any]]) -> None:
    """Draw the worst mean at each point, the theorem's bound, each problem by itself, and exponents."""
    for k, rate in enumerate(reversed(rates)):
        look = looks[_key(rate)]
        panel.plot(rate.values, rate.worst, **look)
        panel.plot(rate.values, rate.bounds, color=look["color"], **BOUND)
        if len(rate.means) > 1:
            panel.plot(rate.values, rate.means.T, color=look["color"], **PROBLEMS)
        exponent = f"{rate.exponent:.2f} [{rate.low:.2f}, {rate.high:.2f}] ({Fraction(rate.theorem)})"
        text, place = f"{SHAPES[look['marker']]} {exponent}".replace("-", "−"), 0.02 + LINE * k
        panel.text(0.02, place, text, transform=panel.transAxes, color=look["color"], fontsize=5.6)
    panel.set_yscale("log")
    log_ticks(panel.xaxis, (value for rate in rates for value in rate.values))
