"""Round numbers on logarithmic axes, written as people write them."""

import math
from collections.abc import Sequence
from typing import Any

from mu2mpi.analysis.figures.style import Axes
from mu2mpi.extra import needed

DIGITS: Sequence[Sequence[float]] = ((1,), (1, 3), (1, 2, 5), (1, 2, 3, 5), (1, 1.5, 2, 3, 5, 7))
"""First digits of the numbers on an axis, the fewest first."""

FEWEST, MOST = 3, 8
"""Numbers on an axis that are chosen by themselves."""

PLAIN = (1e-4, 1e7)
"""Numbers below, and from here on, are written with powers of ten."""


def plain_log_ticks(axis: Any, values: Sequence[float]) -> None:
    """Label a logarithmic axis at the values that occur, as ordinary numbers."""
    ticker = needed("matplotlib.ticker")
    axis.set_major_locator(ticker.FixedLocator(values))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: plain(value)))
    axis.set_minor_locator(ticker.NullLocator())


def number_logarithms(panel: Axes) -> None:
    """Label the logarithmic axes of a panel at round numbers, where nobody chose where."""
    usual = needed("matplotlib.ticker").LogLocator
    for axis, limits in ((panel.xaxis, panel.get_xlim()), (panel.yaxis, panel.get_ylim())):
        if axis.get_scale() == "log" and isinstance(axis.get_major_locator(), usual):
            plain_log_ticks(axis, round_numbers(*limits))


def plain(value: float) -> str:
    """Return a number with as many digits as tell it from others on an axis."""
    if PLAIN[0] <= value < PLAIN[1]:
        return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
    digits, _, power = f"{value:.3e}".partition("e")
    times = "" if float(digits) == 1 else f"{float(digits):g} \\times "
    return f"${times}10^{{{int(power)}}}$"


def round_numbers(low: float, high: float) -> list[float]:
    """Return round numbers in a range, few of a wide one, and evenly spread ones of a narrow one."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in DIGITS:
        found = [n for k in powers for d in digits if low <= (n := float(f"{d}e{k}")) <= high]
        if len(found) >= FEWEST:
            return found[:: -(-len(found) // MOST)]
    numbers = needed("matplotlib.ticker").MaxNLocator(5).tick_values(low, high)
    return [float(n) for n in numbers if low <= n <= high]
