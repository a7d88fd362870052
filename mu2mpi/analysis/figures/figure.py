"""Base class of figures; panels, their title and legend, and room for all text."""

import io
import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas
from matplotlib import colormaps, rcParams, ticker
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from mu2mpi.analysis.figures._theme import INK as INK, PAPER, Page as Page
from mu2mpi.core.errors import InputError
from mu2mpi.results.reader import Summary

DASHES: Sequence[Any] = ("-", (0, (5, 1.6)), (0, (1.2, 1.2)), (0, (6, 1.4, 1.2, 1.4)), (0, (3, 3)))
MARKERS = "osD^v"
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "oo", "++", "--")

# Figures narrower than so many inches have one column of panels, no higher than this share of the width
STACKED_WIDTH, STACKED_RATIO = 5.0, 0.55
# Longest line of a legend, and most letters of a name beside or below an axis
LABEL_INCHES, NAME_LENGTH = 2.7, 24
# Numbers without an exponent unless they are very large or small
PLAIN = ticker.FuncFormatter(lambda value, _: f"{value:,.9g}" if value >= 1000 else f"{value:.4g}")


def colours(count: int) -> list[Any]:
    """Return colours of viridis that stand out from white, in the order of their lightness."""
    return list(colormaps["viridis"](np.linspace(0, 0.82, max(2, count))[:count]))


def look_of(colour: Any, style: int, marker: int) -> dict[str, Any]:
    """Return a line's colour, with the dashes and the marker of these numbers."""
    look = {"linestyle": DASHES[style % len(DASHES)], "marker": MARKERS[marker % len(MARKERS)]}
    return {"color": colour, **look}


def handle(label: str, /, **style: Any) -> Line2D:
    """Return an entry of a legend."""
    return Line2D([], [], **{"color": INK, **style, "label": label})


def bar_looks(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Colours and hatches of bars by name, distinguishable in greyscale."""
    names = [*names]
    return {
        name: {"facecolor": colour, "hatch": hatch, "edgecolor": PAPER, "linewidth": 0.6}
        for name, colour, hatch in zip(names, colours(len(names)), HATCHES, strict=False)
    }


def short(name: str) -> str:
    """Return a name without its middle, if it is long."""
    half = NAME_LENGTH // 2
    return name if len(name) <= NAME_LENGTH else f"{name[: half - 1]}…{name[-half:]}"


def wrapped(text: str, inches: float) -> str:
    """Return a text in lines of about so many inches; formulas and settings with their values stay whole."""
    joined = re.sub(r" = |\$[^$]*\$", lambda found: found[0].replace(" ", "\0"), text)
    letters = max(8, int(inches * 72 / (0.57 * rcParams["font.size"])))
    return "\n".join(textwrap.fill(line, letters) for line in joined.split("\n")).replace("\0", " ")


def log_ticks(axis: Any, values: Iterable[float]) -> None:
    """Make a logarithmic axis with ticks at these values, written as plain numbers."""
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    axis.set_major_locator(ticker.FixedLocator(sorted({*values})))
    axis.set_major_formatter(PLAIN)
    axis.set_minor_locator(ticker.NullLocator())


class NotebookFigure(Canvas):
    """A figure that a notebook shows without pyplot."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=self.dpi)
        return buffer.getvalue()


class Sheet:
    """Panels, shape (rows, columns), a title above them and a legend below.

    A narrow page has all panels in one column, if it `stacks`. The user's axes take the place of all panels
    or of the first row. `height` is in inches, of all panels or of each row; `titles` are of columns.
    """

    def __init__(
        self,
        page: Page,
        rows: int,
        columns: int,
        height: float | Sequence[float],
        titles: Sequence[str] = (),
        *,
        sharex: Any = False,
        sharey: Any = False,
        stacks: bool = True,
    ) -> None:
        self.page, self.title, self.has_bars = page, "", False
        self.legend: list[Any] = []
        self._shares = sharex, sharey
        self._heights = np.broadcast_to(np.asarray(height, float), rows)
        self.is_stacked = stacks and columns > 1 and page.width < STACKED_WIDTH and not page.axes
        if self.is_stacked:
            self._heights = np.tile(np.minimum(self._heights, STACKED_RATIO * page.width), columns)
        size = (page.width, self._heights.sum() + 0.4 * len(self._heights) + 2)
        self.figure = NotebookFigure(figsize=size, layout="constrained")
        self._grid = self.figure.subplots(
            len(self._heights),
            1 if self.is_stacked else columns,
            height_ratios=self._heights.tolist(),
            squeeze=False,
            sharex=sharex,
            sharey=not self.is_stacked and sharey,
        )
        self.panels = self._grid.reshape(columns, rows).T if self.is_stacked else self._grid
        for first, *others in self.panels if self.is_stacked and sharey else ():
            for panel in others:
                panel.sharey(first)
        fewer = columns if rows > 1 else 1
        if page.axes and len(page.axes) not in {self.panels.size, fewer}:
            raise InputError(f"ax= takes {self.panels.size} or {fewer} axes, not {len(page.axes)}")
        self.panels.flat[: len(page.axes)] = page.axes
        for panel, title in zip(self.panels[0], titles, strict=False):
            panel.set_title(title)

    def draw_means(self, panel: Any, x: Iterable[float], y: Iterable[float], **look: Any) -> Any:
        """Draw the mean of `y` at each `x`, with bars of one sample standard deviation; return the means."""
        found = pandas.Series([*y], dtype=float).groupby([*map(float, x)]).agg(["mean", "std"])
        self.draw_bars(panel, found.index, found["mean"], found["std"], **look)
        return found["mean"]

    def draw_bars(self, panel: Any, x: Any, y: Any, deviations: Any, **look: Any) -> None:
        """Draw a line with bars of one standard deviation, if any is known and not 0."""
        is_barred = bool((deviations > 0).any())
        self.has_bars |= is_barred
        bars = {"yerr": deviations if is_barred else None, "capsize": 2.5, "elinewidth": 0.9}
        drawn = panel.errorbar(x, y, **bars, **look)
        drawn.lines[0].set_label(drawn.get_label())

    def add_colorbar(self, picture: Any, label: str) -> None:
        """Add a colour bar beside all panels."""
        axes = [*(self.page.axes or self.panels.flat)]
        axes[0].figure.colorbar(picture, ax=axes, label=label, aspect=30)

    def finish(self) -> Canvas:
        """Add title and legend, and give all text its room."""
        page = self.page
        for panel in page.axes or self.panels.flat:
            for axis in (panel.xaxis, panel.yaxis):
                if page.linear and axis.get_scale() == "log":
                    panel.set(**{f"{axis.axis_name}scale": "linear"})
                _number_logarithms(axis)
        if self.has_bars:
            bar = handle("bars: ± 1 standard deviation", linestyle="", marker="|", markersize=9)
            self.legend.append(bar)
        title = self.title if page.title is None else page.title
        if page.axes:
            if title:
                page.axes[0].set_title(title)
            if self.legend:
                page.axes[-1].legend(handles=self.legend, fontsize="small")
            return self.figure
        if title:
            self.figure.suptitle(wrapped(title, page.width))
        self._add_legend()
        self._fit()
        return self.figure

    def _add_legend(self) -> None:
        room = min(LABEL_INCHES, self.page.width - 0.6)
        labels = [wrapped(entry.get_label(), room) for entry in self.legend]
        count = len(labels)
        for columns in dict.fromkeys(-(-count // rows) for rows in range(1, count + 1)):
            legend = self.figure.legend(self.legend, labels, loc="outside lower center", ncols=columns)
            if columns == 1 or legend.get_window_extent().width <= self.figure.bbox.width:
                return
            legend.remove()

    def _fit(self) -> None:
        """Wrap labels, leave out those of ticks that cover others, and give panels their heights."""
        (rows, columns), (sharex, sharey) = self._grid.shape, self._shares
        for (i, j), panel in np.ndenumerate(self._grid):
            # The layout counts the middle of a title, which is far outside for one that is not wrapped.
            width = self.page.width / columns - 0.6
            panel.set_title(wrapped(panel.get_title("left"), width), loc="left")
            is_inner = sharex and i + 1 < rows and self._grid[i + 1, j].axison
            panel.set_xlabel("" if is_inner else wrapped(panel.get_xlabel(), width))
            panel.set_ylabel("" if sharey and j else wrapped(panel.get_ylabel(), float(self._heights[i])))
        if self.is_stacked:
            self._heights = np.where([row[0].axison for row in self._grid], self._heights, 1e-3)
            self._grid[0, 0].get_gridspec().set_height_ratios(self._heights)
        for step in range(3):
            self.figure.draw_without_rendering()
            whole = self.figure.get_figheight()
            drawn = sum(row[0].get_position(original=True).height for row in self._grid) * whole
            for panel in self._grid.flat if step else ():
                _thin(panel.xaxis)
                _thin(panel.yaxis)
            self.figure.set_figheight(whole + self._heights.sum() - drawn)


class Figure:
    """Figure of result files; the first line of a subclass's docstring is its summary.

    A subclass of a user's is registered with `mu2mpi.register`, in a file that ``--import`` names.
    """

    kind = "figures"
    name: str  # What users call it: ``mu2mpi plot NAME``.
    needs = ""  # A column of a run's row without which it cannot be drawn; empty for none.
    axes: tuple[str, ...] = ()  # Choices for its horizontal axis; empty if there is no choice.
    repeats_differ_in: tuple[str, ...] = ()  # Columns that tell runs of one experiment apart.

    def is_reported(self, runs: Sequence[Summary]) -> bool:
        """Return whether a report of these runs has this figure."""
        return True

    def draw(self, runs: Sequence[Summary], page: Page, against: str | None = None) -> Sheet:
        """Return the figure of at least one run; `against` is one of `axes`, or None for the default.

        Raises InputError if the runs do not suit it.
        """
        raise NotImplementedError


def _number_logarithms(axis: Any) -> None:
    """Label a logarithmic axis at round numbers, unless its ticks were chosen."""
    if axis.get_scale() != "log" or not isinstance(axis.get_major_locator(), ticker.LogLocator):
        return
    low, high = sorted(axis.get_view_interval())
    digits = (1, 2, 3, 5) if high < 12 * low else (1, 3) if high < 150 * low else (1,)
    is_short = high < 3 * low
    axis.set_minor_locator(ticker.NullLocator())
    axis.set_major_locator(ticker.MaxNLocator(5) if is_short else ticker.LogLocator(subs=digits, numticks=9))
    axis.set_major_formatter(ticker.ScalarFormatter() if is_short else PLAIN)


def _thin(axis: Any) -> None:
    """Leave out the numbers that would cover the one before; names are written upright instead."""
    low, high = sorted(axis.get_view_interval())
    near, is_x = 1e-9 * (high - low), axis.axis_name == "x"
    labels = dict(zip(axis.get_majorticklocs().tolist(), axis.get_majorticklabels(), strict=False))
    labels = {x: text for x, text in labels.items() if low - near <= x <= high + near and text.get_text()}
    kept, end = [], -math.inf
    for place in sorted(labels, reverse=bool(axis.get_inverted())):
        box = labels[place].get_window_extent()
        start, stop = (box.x0, box.x1 + box.height / 3) if is_x else (box.y0, box.y1)
        if start > end:
            kept.append(place)
            end = stop
    formatter = axis.get_major_formatter()
    if labels and (formatter is PLAIN or isinstance(formatter, ticker.ScalarFormatter)):
        # Fixed also where nothing is left out: another style would choose others.
        axis.set_major_locator(ticker.FixedLocator(kept))
    elif len(kept) < len(labels) and is_x:
        axis.set_ticks([*labels], [short(text.get_text()) for text in labels.values()], rotation=90)
