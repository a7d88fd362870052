"""Panels of a figure, their title and legend, and room for all text, by matplotlib's constrained layout."""

import io
import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas
from matplotlib import colormaps, rcParams
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullLocator,
    ScalarFormatter,
)

from mu2mpi.analysis.figures._page import INK, Page
from mu2mpi.errors import InputError

DASHES: Sequence[Any] = ("-", (0, (5, 1.6)), (0, (1.2, 1.2)), (0, (6, 1.4, 1.2, 1.4)), (0, (3, 3)))
MARKERS = "osD^v"
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "oo", "++", "--")

STACKED_WIDTH, STACKED_RATIO = 5.0, 0.55
"""Figures narrower than so many inches have one column of panels, no higher than this share of the width."""

LABEL_INCHES, NAME_LENGTH = 2.7, 24
"""Longest line of a legend, and most letters of a name beside or below an axis."""

PLAIN = FuncFormatter(lambda value, _: f"{value:,.9g}" if value >= 1000 else f"{value:.4g}")
"""Numbers without an exponent unless they are very large or small."""


def colours(count: int) -> list[Any]:
    """Return colours of viridis that stand out from white, in the order of their lightness."""
    return list(colormaps["viridis"](np.linspace(0, 0.82, max(2, count))[:count]))


def look_of(colour: Any, style: int, marker: int) -> dict[str, Any]:
    """Return a line's colour, with the dashes and the marker of these numbers."""
    return {
        "color": colour,
        "linestyle": DASHES[style % len(DASHES)],
        "marker": MARKERS[marker % len(MARKERS)],
    }


def handle(label: str, /, **style: Any) -> Line2D:
    """Return an entry of a legend."""
    return Line2D([], [], **{"color": INK, **style, "label": label})


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
    axis.set_major_locator(FixedLocator(sorted({*values})))
    axis.set_major_formatter(PLAIN)
    axis.set_minor_locator(NullLocator())


class NotebookFigure(Figure):
    """A figure that a notebook shows without pyplot."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=self.dpi)
        return buffer.getvalue()


class Sheet:
    """Panels, shape (rows, columns), a title above them and a legend below.

    Parameters
    ----------
    page : Page
        A narrow page has all panels in one column, if they `stacks`. On the user's axes, these take the place
        of all panels, or of the first row (or the first panel of a single row).
    rows, columns : int
    height : float or sequence of float
        Inches of the panels in each row; pictures keep the shape of their pixels.
    titles : sequence of str, optional
        Titles of the columns.
    sharex, sharey : bool or str, optional
        As in `matplotlib.figure.Figure.subplots`; inner labels are left out.
    """

    def __init__(
        self,
        page: Page,
        rows: int,
        columns: int,
        height: float | Sequence[float],
        titles: Sequence[str] = (),
        *,
        sharex: bool | str = False,
        sharey: bool | str = False,
        stacks: bool = True,
    ) -> None:
        self.page, self.title, self.has_bars = page, "", False
        self.legend: list[Any] = []
        self._heights = np.broadcast_to(np.asarray(height, float), rows)
        self.is_stacked = is_stacked = stacks and columns > 1 and page.width < STACKED_WIDTH and not page.axes
        if is_stacked:
            limit = STACKED_RATIO * page.width
            self._heights = np.tile(np.minimum(self._heights, limit), columns)
        size = (page.width, self._heights.sum() + 0.4 * len(self._heights) + 2)
        self.figure = NotebookFigure(figsize=size, layout="constrained")
        self._shares = sharex, False if is_stacked else sharey
        options: dict[str, Any] = {"squeeze": False, "sharex": sharex, "sharey": self._shares[1]}
        self._grid = self.figure.subplots(
            len(self._heights), 1 if is_stacked else columns, height_ratios=self._heights.tolist(), **options
        )
        self.panels = self._grid.reshape(columns, rows).T if is_stacked else self._grid
        if is_stacked and sharey:
            for first, *others in self.panels:
                for panel in others:
                    panel.sharey(first)
        if page.axes:
            fewer = columns if rows > 1 else 1
            if len(page.axes) not in {self.panels.size, fewer}:
                raise InputError(
                    f"this figure has {self.panels.size} panels: ax= takes as many axes, or {fewer} for the "
                    f"loss alone, not {len(page.axes)}"
                )
            self.panels.flat[: len(page.axes)] = page.axes
        for panel, title in zip(self.panels[0], titles, strict=False):
            panel.set_title(title)

    def draw_means(self, panel: Any, x: Any, y: Any, **look: Any) -> None:
        """Draw the mean of `y` at each `x`, with bars of one sample standard deviation where it is known."""
        found = pandas.Series(np.asarray(y, float)).groupby(np.asarray(x, float)).agg(["mean", "std"])
        is_barred = bool((found["std"] > 0).any())
        self.has_bars |= is_barred
        drawn = panel.errorbar(
            found.index,
            found["mean"],
            found["std"] if is_barred else None,
            **{"capsize": 2.5, "elinewidth": 0.9, **look},
        )
        drawn.lines[0].set_label(drawn.get_label())

    def add_colorbar(self, picture: Any, label: str) -> None:
        """Add a colour bar beside all panels."""
        figure = self.panels[0, 0].figure
        figure.colorbar(picture, ax=[*(self.page.axes or self.panels.flat)], label=label, aspect=30)

    def finish(self) -> Figure:
        """Add title and legend, and give all text its room."""
        page = self.page
        for panel in page.axes or self.panels.flat:
            for axis in (panel.xaxis, panel.yaxis):
                if page.linear and axis.get_scale() == "log":
                    panel.set(**{f"{axis.axis_name}scale": "linear"})
                _number_logarithms(axis)
        if self.has_bars:
            look: dict[str, Any] = {"linestyle": "", "marker": "|", "markersize": 9}
            self.legend.append(handle("bars: ± 1 standard deviation", **look))
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
        """Put a legend below all panels, in as many columns as fit."""
        room = min(LABEL_INCHES, self.page.width - 0.6)
        labels = [wrapped(entry.get_label(), room) for entry in self.legend]
        for rows in range(1, len(labels) + 1):
            columns = -(-len(labels) // rows)
            legend = self.figure.legend(
                handles=self.legend, labels=labels, loc="outside lower center", ncols=columns
            )
            if columns == 1 or legend.get_window_extent().width <= self.figure.bbox.width:
                return
            legend.remove()

    def _fit(self) -> None:
        """Wrap labels, leave out those of ticks that cover others, and give panels their heights."""
        rows, columns = self._grid.shape
        for (i, j), panel in np.ndenumerate(self._grid):
            # The layout counts the middle of a title, which is far outside for one that is not wrapped.
            panel.set_title(wrapped(panel.get_title("left"), self.page.width / columns - 0.6), loc="left")
            if self._shares[0] and i + 1 < rows and self._grid[i + 1, j].axison:
                panel.set_xlabel("")
            if self._shares[1] and j > 0:
                panel.set_ylabel("")
        if self.is_stacked:
            self._heights = np.where([row[0].axison for row in self._grid], self._heights, 1e-3)
            self._grid[0, 0].get_gridspec().set_height_ratios(self._heights)
        for step in range(3):
            self.figure.draw_without_rendering()
            whole = self.figure.get_figheight()
            missing = 0.0
            for row, target in zip(self._grid, self._heights, strict=True):
                box, aspect = row[0].get_position(original=True), row[0].get_aspect()
                width = box.width * self.page.width
                high = target if aspect == "auto" else width * row[0].get_data_ratio() * aspect
                missing += high - box.height * whole
                for panel in row:
                    if step == 0:
                        panel.set_xlabel(wrapped(panel.get_xlabel(), width))
                        panel.set_ylabel(wrapped(panel.get_ylabel(), high))
                    else:
                        _thin(panel.xaxis)
                        _thin(panel.yaxis)
            self.figure.set_figheight(whole + missing)


def _number_logarithms(axis: Any) -> None:
    """Label a logarithmic axis at round numbers, unless its ticks were chosen."""
    if axis.get_scale() != "log" or not isinstance(axis.get_major_locator(), LogLocator):
        return
    low, high = sorted(axis.get_view_interval())
    axis.set_minor_locator(NullLocator())
    if high < 3 * low:
        axis.set_major_locator(MaxNLocator(5))
        axis.set_major_formatter(ScalarFormatter())
    else:
        digits = (1, 2, 3, 5) if high < 12 * low else (1, 3) if high < 150 * low else (1,)
        axis.set_major_locator(LogLocator(subs=digits, numticks=9))
        axis.set_major_formatter(PLAIN)


def _thin(axis: Any) -> None:
    """Leave out the numbers that would cover the one before; names are written upright instead."""
    low, high = sorted(axis.get_view_interval())
    near, is_x = 1e-9 * (high - low), axis.axis_name == "x"
    ticks = [
        (float(place), label)
        for place, label in zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=False)
        if low - near <= place <= high + near and label.get_text()
    ]
    kept, end = [], -math.inf
    for place, label in sorted(ticks, key=lambda tick: tick[0], reverse=bool(axis.get_inverted())):
        box = label.get_window_extent()
        start, stop = (box.x0, box.x1 + box.height / 3) if is_x else (box.y0, box.y1)
        if start > end:
            kept.append(place)
            end = stop
    formatter = axis.get_major_formatter()
    if ticks and (formatter is PLAIN or isinstance(formatter, ScalarFormatter)):
        # Fixed also where nothing is left out: another style would choose others.
        axis.set_major_locator(FixedLocator(kept))
    elif len(kept) < len(ticks) and is_x:
        names = [short(label.get_text()) for _, label in ticks]
        axis.set_ticks([place for place, _ in ticks], names, rotation=90)
