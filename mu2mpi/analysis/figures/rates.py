"""Excess loss against n, M, d and rho, with fitted exponents beside those of the theorems."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from mu2mpi.analysis.figures.curves import encoded, loss_words
from mu2mpi.analysis.figures.style import DASHES, Axes, Figure, Page, canvas, handle, with_legend
from mu2mpi.analysis.figures.ticks import plain_log_ticks
from mu2mpi.analysis.groups import Group
from mu2mpi.analysis.rates import AXES, FEWEST, Rate, find_rates
from mu2mpi.errors import InputError
from mu2mpi.results.reader import Summary

REGIMES = {False: "without noise, where both servers are one algorithm", True: "private"}

SHAPES = {"o": "●", "s": "■", "D": "◆", "^": "▲", "v": "▼"}
"""Markers, and the letters that look like them."""

LINE = 0.07
"""Height of a line of text, as a share of a panel."""

BOUND: dict[str, Any] = {"linestyle": ":", "linewidth": 1.0}

Key = tuple[tuple[str, Any], ...]
Looks = dict[Key, dict[str, Any]]


def draw(runs: Sequence[Summary], page: Page) -> Figure:
    """Draw a row of panels for each regime, a column for each axis."""
    rates = find_rates(runs)
    if not rates:
        raise InputError(
            "rates need measured excess losses of runs that differ in rounds, machines, classes or rho alone "
            "and have at least three values of it, such as those of jobs/rates.toml"
        )
    regimes = sorted({rate.is_private for rate in rates})
    axes = [axis for axis in AXES if any(rate.axis == axis for rate in rates)]
    figure, panels = canvas(page, len(regimes), len(axes), 0.8 + 2.6 * len(regimes), sharey="row")
    names = [name for name, _ in _key(rates[0]) if name != "server"]
    if len({tuple(rate.settings[name] for name in names) for rate in rates}) > len(DASHES):
        raise InputError("these runs differ in too much for one figure; choose some with --where")
    encoding = encoded(rates, page, panels=(), colours=("server",), styles=names)
    looks = {_key(rate): look for rate, _, look in encoding.groups}
    for row, regime in zip(panels, regimes, strict=True):
        of_axes = [[r for r in rates if r.is_private == regime and r.axis == axis] for axis in axes]
        for panel, here in zip(row, of_axes, strict=True):
            _check_told_apart(here)
            _draw_panel(panel, here, looks)
        row[0].set_title(REGIMES[regime], loc="left")
        row[0].set_ylabel(loss_words(runs, "excess loss"))
        lines = max(len(here) for here in of_axes)
        row[0].set_ylim(*_limits([rate for here in of_axes for rate in here], room=LINE * (lines + 1)))
    for panel, axis in zip(panels[-1], axes, strict=True):
        panel.set_xlabel(f"{axis.symbol}  ({axis.words})")
    drawn = {id(run) for rate in rates for run in rate.runs}
    left = len(runs) - len(drawn)
    remark = [handle(f"{left:,} of {len(runs):,} runs make no line of {FEWEST} points", linestyle="")]
    return with_legend(figure, _legend(rates, looks, page) + remark * (left > 0))


def _key(rate: Group) -> Key:
    """Return what tells a line from another in its panel."""
    across = ["epsilon", *(axis.setting for axis in AXES)]
    return tuple((name, value) for name, value in rate.settings.items() if name not in across)


def _check_told_apart(rates: Sequence[Rate]) -> None:
    """Make sure that no two lines of a panel differ only in what other panels have across."""
    lines: dict[Key, Rate] = {}
    for rate in rates:
        other = lines.setdefault(_key(rate), rate)
        if other is not rate:
            names = [name for name in rate.settings if rate.settings[name] != other.settings[name]]
            raise InputError(
                f"lines against {rate.axis.symbol} differ in {', '.join(names)} alone, too much for one "
                f"figure; choose some, for example with --where {names[0]}=..."
            )


def _draw_panel(panel: Axes, rates: Sequence[Rate], looks: Looks) -> None:
    """Draw the worst mean at each point, the theorem's bound, each problem by itself, and exponents."""
    if not rates:
        panel.set_axis_off()
        return
    panel.set(xscale="log", yscale="log")
    for k, rate in enumerate(rates):
        look = looks[_key(rate)]
        colour = look["color"]
        panel.plot(rate.values, rate.worst, **look)
        panel.plot(rate.values, rate.bounds, color=colour, **BOUND)
        if len(rate.means) > 1:
            panel.plot(rate.values, rate.means.T, color=colour, linewidth=0.5, alpha=0.3)
        exponent = f"{rate.exponent:.2f} [{rate.low:.2f}, {rate.high:.2f}] ({Fraction(rate.theorem)})"
        place = 0.02, 0.02 + LINE * (len(rates) - 1 - k)
        text = f"{SHAPES[look['marker']]} {exponent}".replace("-", "−")
        panel.annotate(text, place, xycoords="axes fraction", color=colour, fontsize=5.6)
    plain_log_ticks(panel.xaxis, sorted({value for rate in rates for value in rate.values}))


def _limits(rates: Sequence[Rate], room: float) -> tuple[float, float]:
    """Return the limits of a logarithmic axis that leaves a share of its height free below all lines."""
    drawn = [value for rate in rates for row in (rate.bounds, *rate.means) for value in row if value > 0]
    low, high = min(drawn) / 1.3, max(drawn) * 1.3
    return float(low * (low / high) ** (room / (1 - room))), float(high)


def _legend(rates: Sequence[Rate], looks: Looks, page: Page) -> list[Any]:
    differ = {name for name, _ in next(iter(looks)) if len({dict(key)[name] for key in looks}) > 1}
    handles = [
        handle(page.words.of({name: value for name, value in key if name in differ}) or "measured", **look)
        for key, look in looks.items()
    ]
    handles.append(handle("the theorem's bound", color=page.theme.ink, **BOUND))
    if any(len(rate.means) > 1 for rate in rates):
        handles.append(handle("single problems", color=page.theme.ink, linewidth=0.5, alpha=0.5))
    handles.append(
        handle("fitted exponent [95 %] (theorem's)", color=page.theme.ink, linestyle="", marker="o")
    )
    return handles
