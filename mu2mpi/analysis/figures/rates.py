"""Excess loss against n, M, d and rho, with fitted exponents beside those of the theorems."""

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from mu2mpi.analysis.cells import sort_key
from mu2mpi.analysis.figures.style import DASHES, Theme, add_legend, canvas, handle, plain_log_ticks
from mu2mpi.analysis.groups import in_words
from mu2mpi.analysis.rates import AXES, Rate, find_rates
from mu2mpi.errors import InputError
from mu2mpi.results.reader import Summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw"]

ON_AXES = tuple(axis.setting for axis in AXES)

REGIMES = {False: "without noise, where both servers are one algorithm", True: "private"}

SHAPES = {"o": "●", "s": "■", "D": "◆", "^": "▲", "v": "▼"}
"""Markers, and the letters that look like them."""

LINE = 0.07
"""Height of a line of text, as a share of a panel."""

Look = dict[str, Any]


def draw(runs: Sequence[Summary], theme: Theme) -> "Figure":
    """Draw a row of panels for each regime, a column for each axis."""
    rates = find_rates(runs)
    if not rates:
        raise InputError(
            "rates need measured excess losses of runs that differ in rounds, machines, classes or rho alone "
            "and have at least three values of it, such as those of jobs/rates.toml"
        )
    regimes = sorted({rate.is_private for rate in rates})
    axes = [axis for axis in AXES if any(rate.axis == axis for rate in rates)]
    figure, panels = canvas(len(regimes), len(axes), 0.8 + 2.6 * len(regimes), sharey="row")
    looks = _looks(rates, theme)
    for row, regime in zip(panels, regimes, strict=True):
        of_regime = [rate for rate in rates if rate.is_private == regime]
        for panel, axis in zip(row, axes, strict=True):
            here = [rate for rate in of_regime if rate.axis == axis]
            _check_told_apart(here)
            _draw_panel(panel, here, looks)
        row[0].set_title(REGIMES[regime], loc="left")
        row[0].set_ylabel("excess loss (nats)")
        lines = max(sum(rate.axis == axis for rate in of_regime) for axis in axes)
        row[0].set_ylim(*_limits(of_regime, room=LINE * (lines + 1)))
    for panel, axis in zip(panels[-1], axes, strict=True):
        panel.set_xlabel(f"{axis.symbol}  ({axis.words})")
    add_legend(figure, _legend(rates, looks, theme))
    return figure


def _key(rate: Rate) -> tuple[Any, ...]:
    """Return what tells a line from another in its panel."""
    return tuple((name, value) for name, value in rate.settings.items() if name not in ON_AXES)


def _looks(rates: Sequence[Rate], theme: Theme) -> dict[tuple[Any, ...], Look]:
    """Return colours by server, dashes and markers by everything else in which lines differ."""
    keys = {_key(rate): rate.settings["server"] for rate in rates}
    servers = sorted(set(keys.values()), reverse=True)
    colours = dict(zip(servers, theme.colours(len(servers)), strict=True))
    rest = {key: tuple(value for name, value in key if name != "server") for key in keys}
    others = sorted(set(rest.values()), key=sort_key)
    if len(others) > len(DASHES):
        raise InputError("these runs differ in too much for one figure; choose some with --where")
    return {
        key: {
            "color": colours[server],
            "linestyle": DASHES[others.index(rest[key])],
            "marker": list(SHAPES)[others.index(rest[key])],
        }
        for key, server in keys.items()
    }


def _check_told_apart(rates: Sequence[Rate]) -> None:
    """Make sure that no two lines of a panel differ only in what other panels have across."""
    for k, rate in enumerate(rates):
        for other in rates[:k]:
            if _key(rate) == _key(other):
                names = [name for name in rate.settings if rate.settings[name] != other.settings[name]]
                raise InputError(
                    f"lines against {rate.axis.symbol} differ in {', '.join(names)} alone, too much for one "
                    f"figure; choose some, for example with --where {names[0]}=..."
                )


def _draw_panel(panel: Any, rates: Sequence[Rate], looks: dict[tuple[Any, ...], Look]) -> None:
    """Draw the worst mean at each point, the theorem's bound, each problem by itself, and exponents."""
    if not rates:
        panel.set_axis_off()
        return
    panel.set(xscale="log", yscale="log")
    for k, rate in enumerate(rates):
        look = looks[_key(rate)]
        panel.plot(rate.values, rate.worst, **look)
        panel.plot(rate.values, rate.bounds, ":", color=look["color"], linewidth=1.0)
        if len(rate.means) > 1:
            panel.plot(rate.values, rate.means.T, color=look["color"], linewidth=0.5, alpha=0.3)
        exponent = f"{rate.exponent:.2f} [{rate.low:.2f}, {rate.high:.2f}] ({Fraction(rate.theorem)})"
        panel.annotate(
            f"{SHAPES[look['marker']]} {exponent}".replace("-", "−"),
            (0.02, 0.02 + LINE * (len(rates) - 1 - k)),
            xycoords="axes fraction",
            color=look["color"],
            fontsize=5.6,
        )
    plain_log_ticks(panel.xaxis, sorted({value for rate in rates for value in rate.values}))


def _limits(rates: Sequence[Rate], room: float) -> tuple[float, float]:
    """Return the limits of a logarithmic axis that leaves a share of its height free below all lines."""
    drawn = [value for rate in rates for row in (rate.bounds, *rate.means) for value in row if value > 0]
    low, high = min(drawn) / 1.3, max(drawn) * 1.3
    return float(low * (low / high) ** (room / (1 - room))), float(high)


def _legend(rates: Sequence[Rate], looks: dict[tuple[Any, ...], Look], theme: Theme) -> list[Any]:
    names = [
        name
        for name in rates[0].settings
        if name not in ON_AXES and len({rate.settings.get(name) for rate in rates}) > 1
    ]
    handles = [
        handle(in_words({name: dict(key)[name] for name in names}) or "measured", **look)
        for key, look in looks.items()
    ]
    handles.append(handle("the theorem's bound", color=theme.ink, linestyle=":", linewidth=1.0))
    if any(len(rate.means) > 1 for rate in rates):
        handles.append(handle("single problems", color=theme.ink, linewidth=0.5, alpha=0.5))
    handles.append(handle("fitted exponent [95 %] (theorem's)", color=theme.ink, linestyle="", marker="o"))
    return handles
