"""Base class of figures, and the layout of panels, title and legend."""

import io
import math
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas
from matplotlib import colormaps, rcParams, ticker
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.text import Text

from mu2mpi.analysis.figures._theme import FigureOptions as FigureOptions
from mu2mpi.core.errors import InputError
from mu2mpi.results.reader import RunSummary

FOREGROUND = "#1a1a1a"
DASHES: Sequence[Any] = ("-", (0, (5, 1.6)), (0, (1.2, 1.2)), (0, (6, 1.4, 1.2, 1.4)), (0, (3, 3)))
MARKERS = "osD^vPX<>p*hd"

MIN_PANEL_WIDTH_INCHES = 1.6
MAX_FIGURE_HEIGHT_INCHES = 4.0  # inches, unless panels would be less than their smallest height
MAX_TICK_NAME_CHARACTERS = 24  # characters of a name at a tick
# Tick labels without an exponent, except for very large or small numbers
TICK_FORMATTER = ticker.FuncFormatter(lambda value, _: f"{value:,.9g}" if value >= 1000 else f"{value:.4g}")


def palette(count: int) -> list[Any]:
    """Return colours of matplotlib's viridis from dark to light, all of them visible on white."""
    return list(colormaps["viridis"](np.linspace(0, 0.82, max(2, count))[:count]))


def line_style(colour: Any, dash: int, marker: int) -> dict[str, Any]:
    """Return matplotlib line properties: a colour, a dash pattern and a marker by their indices."""
    style = {"linestyle": DASHES[dash % len(DASHES)], "marker": MARKERS[marker % len(MARKERS)]}
    return {"color": colour, **style}


def legend_entry(label: str, /, **style: Any) -> Line2D:
    """Return a matplotlib legend entry with a label and line properties."""
    return Line2D([], [], **{"color": FOREGROUND, **style, "label": label})


def shorten_name(name: str) -> str:
    """Replace the middle of a name of more than `MAX_TICK_NAME_CHARACTERS` characters by an ellipsis."""
    half = MAX_TICK_NAME_CHARACTERS // 2
    return name if len(name) <= MAX_TICK_NAME_CHARACTERS else f"{name[: half - 1]}…{name[-half:]}"


def wrap_text(text: str, inches: float) -> str:
    """Wrap text to a width in inches, without breaking ``name = value``."""
    joined = text.replace(" = ", "\0=\0")
    characters = max(8, int(inches * 72 / (0.57 * rcParams["font.size"])))
    return "\n".join(textwrap.fill(line, characters) for line in joined.split("\n")).replace("\0", " ")


def set_log_ticks(axis: Any, values: Iterable[float]) -> None:
    """Make a matplotlib axis logarithmic, with tick labels without exponents at the given values."""
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    axis.set_major_locator(ticker.FixedLocator(sorted({*values})))
    axis.set_major_formatter(TICK_FORMATTER)
    axis.set_minor_locator(ticker.NullLocator())


class NotebookFigure(Canvas):
    """Matplotlib figure that a notebook displays without pyplot."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=self.dpi)
        return buffer.getvalue()


class Layout:
    """Layout of a figure: a grid of panels, a title above and a legend below.

    Rows of more panels than fit beside each other are continued below.

    Parameters
    ----------
    options : FigureOptions
        Options whose `user_axes` replace all panels, or the first of each row.
    rows, columns : int
        Shape of the array `panels`.
    height : float
        Inches of every panel; less in a figure of `MAX_FIGURE_HEIGHT_INCHES`.
    titles : sequence of str
        Titles of the rows, or of the panels of a single row.
    sharex, sharey : bool or str
        Shared axes, as for `matplotlib.pyplot.subplots`.
    min_height : float
        Smallest height of a panel in inches.
    """

    def __init__(
        self,
        options: FigureOptions,
        rows: int,
        columns: int,
        height: float,
        titles: Sequence[str] = (),
        *,
        sharex: Any = False,
        sharey: Any = False,
        min_height: float = 0.5,
    ) -> None:
        self.options, self.title, self.has_error_bars = options, "", False
        self.legend: list[Any] = []
        fitting_panels = max(1, int(options.width / MIN_PANEL_WIDTH_INCHES))
        lines = -(-columns // fitting_panels)  # of the grid, for each row
        self._height, self._min_height = height, min_height
        size = options.width, rows * lines * (height + 0.4) + 2
        self.figure = NotebookFigure(figsize=size, layout="constrained")
        shape = rows * lines, -(-columns // lines)
        self.grid = self.figure.subplots(*shape, sharex=sharex, sharey=sharey, squeeze=False)
        cells = self.grid.reshape(rows, -1)
        for panel in cells[:, columns:].flat:
            panel.set_axis_off()
        self.panels, given = cells[:, :columns], options.user_axes
        if given and len(given) not in {self.panels.size, rows}:
            raise InputError(f"ax= takes {self.panels.size} or {rows} axes, not {len(given)}")
        for place, axes in zip(np.ndindex(rows, len(given) // rows), given, strict=True):
            self.panels[place] = axes
        for panel, title in zip(self.panels[0] if rows == 1 else self.panels[:, 0], titles, strict=False):
            panel.set_title(title)

    def draw_means(self, panel: Any, x: Iterable[float], y: Iterable[float], **style: Any) -> Any:
        """Draw and return the mean of `y` at each `x`, with error bars of any standard deviations."""
        points = pandas.Series([*y], dtype=float).groupby([*map(float, x)]).agg(["mean", "std"])
        has_error_bars = bool((points["std"] > 0).any())
        self.has_error_bars |= has_error_bars
        bars = {"yerr": points["std"] if has_error_bars else None, "capsize": 2.5, "elinewidth": 0.9}
        container = panel.errorbar(points.index, points["mean"], **bars, **style)
        container.lines[0].set_label(container.get_label())
        return points["mean"]

    def finish(self) -> Canvas:
        """Add title and legend, fit all text to the figure, and return the matplotlib figure."""
        options = self.options
        for panel in options.user_axes or self.panels.flat:
            for axis in (panel.xaxis, panel.yaxis):
                if options.linear and axis.get_scale() == "log":
                    panel.set(**{f"{axis.axis_name}scale": "linear"})
                _format_log_axis(axis)
        if self.has_error_bars:
            self.legend.append(legend_entry("bars: ± 1 std", linestyle="", marker="|", markersize=9))
        title = self.title if options.title is None else options.title
        if options.user_axes:
            if title:
                options.user_axes[0].set_title(title)
            if self.legend:
                options.user_axes[-1].legend(handles=self.legend, fontsize="small")
            for panel in options.user_axes:
                ticks = [*panel.get_xticklabels(), *panel.get_yticklabels()]
                for text in {*panel.findobj(Text), *ticks} - {*panel.texts}:
                    text.set_parse_math(text.get_parse_math() and "$" not in text.get_text())
            return self.figure
        if title:
            self.figure.suptitle(wrap_text(title, options.width))
        self._add_legend()
        self._fit_text()
        return self.figure

    def _add_legend(self) -> None:
        labels = [wrap_text(entry.get_label(), self.options.width / 2 - 0.6) for entry in self.legend]
        count = len(labels)
        for columns in dict.fromkeys(-(-count // rows) for rows in range(1, count + 1)):
            legend = self.figure.legend(self.legend, labels, loc="outside lower center", ncols=columns)
            if columns <= 2 or legend.get_window_extent().width <= self.figure.bbox.width:
                return
            legend.remove()

    def _fit_text(self) -> None:
        """Wrap labels, thin out overlapping tick labels, and fit the heights of the panels."""
        rows, columns = self.grid.shape
        xlabels = [[panel.get_xlabel() for panel in row] for row in self.grid]
        ylabels = [[panel.get_ylabel() for panel in row] for row in self.grid]
        width = self.options.width / columns - 0.6
        for (i, j), panel in np.ndenumerate(self.grid):
            # Constrained layout would reserve space for the centred part of a long title.
            panel.set_title(wrap_text(panel.get_title("left"), width), loc="left")
            is_last = i + 1 == rows or not self.grid[i + 1, j].axison
            if is_last:
                panel.tick_params(labelbottom=True)  # which a shared axis has in the last row alone
            is_repeated = not is_last and xlabels[i][j] == xlabels[i + 1][j]
            panel.set_xlabel("" if is_repeated else wrap_text(xlabels[i][j], width))
        figure, inches = self.figure, self._height
        figure.align_ylabels()
        for step in range(3):
            for (i, j), panel in np.ndenumerate(self.grid):
                is_repeated = j > 0 and ylabels[i][j] == ylabels[i][j - 1]
                is_common = rows > 1 and len({row[j] for row in ylabels}) == 1
                label = wrap_text(ylabels[i][j], rows * inches if is_common else inches + 0.3)
                if is_common and i == (rows - 1) // 2:
                    # One label beside the middle of the column, where it may be higher than the panel.
                    panel.yaxis.label.set(y=0.5 if rows % 2 else -0.1, in_layout=False)
                elif is_common:
                    label = " " + "\n " * label.count("\n")  # of the same width
                panel.set_ylabel("" if is_repeated else label)
            figure.draw_without_rendering()
            height = figure.get_figheight()
            panel_height = sum(row[0].get_position(original=True).height for row in self.grid) * height
            for panel in self.grid.flat if step else ():
                _thin_tick_labels(panel.xaxis)
                _thin_tick_labels(panel.yaxis)
            room = max(rows * self._min_height, MAX_FIGURE_HEIGHT_INCHES - height + panel_height)
            inches = min(inches, room / rows)
            figure.set_figheight(height - panel_height + rows * inches)


class Figure:
    """Base class of figures; the first line of a subclass's docstring is its summary in the help.

    Texts are drawn as they are, without formulas, since they contain names from data. Extensions register a
    subclass with `mu2mpi.register`, in a file for ``--import``.
    """

    component_kind = "figures"
    name: str  # of ``mu2mpi plot NAME``
    required_column = ""  # column of `RunSummary.table_row` that every run must have; empty for none
    # Values of ``--x-axis``; empty for a fixed horizontal axis, None for any setting or measurement
    x_axes: tuple[str, ...] | None = ()
    has_value_panels = False  # whether ``--values`` chooses the panels
    repetition_columns: tuple[str, ...] = ()  # columns in which repeated runs of one experiment differ
    report_settings: tuple[str, ...] = ()  # of which one must differ in reports with it; empty for any report

    def is_in_report(self, runs: Sequence[RunSummary]) -> bool:
        """Whether a report of these runs contains the figure: by default if `report_settings` differ."""
        distinct = [{getattr(run.experiment, name) for run in runs} for name in self.report_settings]
        return not distinct or max(map(len, distinct)) > 1

    def draw(self, runs: Sequence[RunSummary], options: FigureOptions, x_axis: str | None = None) -> Layout:
        """Draw a figure of at least one run; InputError if the figure cannot show these runs.

        The horizontal axis `x_axis` is one of `x_axes`, if it has some, or None for the default.
        """
        raise NotImplementedError


def _format_log_axis(axis: Any) -> None:
    """Place the ticks of a logarithmic axis at round numbers, unless its ticks are set explicitly."""
    if axis.get_scale() != "log" or not isinstance(axis.get_major_locator(), ticker.LogLocator):
        return
    low, high = sorted(axis.get_view_interval())
    leading_digits = (1, 2, 3, 5) if high < 12 * low else (1, 3) if high < 150 * low else (1,)
    is_short = high < 3 * low
    axis.set_minor_locator(ticker.NullLocator())
    log_locator = ticker.LogLocator(subs=leading_digits, numticks=9)
    axis.set_major_locator(ticker.MaxNLocator(5) if is_short else log_locator)
    axis.set_major_formatter(ticker.ScalarFormatter() if is_short else TICK_FORMATTER)


def _thin_tick_labels(axis: Any) -> None:
    """Remove numeric tick labels of an axis that overlap the previous one; rotate overlapping names."""
    low, high = sorted(axis.get_view_interval())
    margin, is_x = 1e-9 * (high - low), axis.axis_name == "x"
    labels = dict(zip(axis.get_majorticklocs().tolist(), axis.get_majorticklabels(), strict=False))
    labels = {x: text for x, text in labels.items() if low - margin <= x <= high + margin and text.get_text()}
    kept, end = [], -math.inf
    for place in sorted(labels, reverse=bool(axis.get_inverted())):
        box = labels[place].get_window_extent()
        start, stop = (box.x0, box.x1 + box.height / 3) if is_x else (box.y0, box.y1)
        if start > end:
            kept.append(place)
            end = stop
    formatter = axis.get_major_formatter()
    if labels and (formatter is TICK_FORMATTER or isinstance(formatter, ticker.ScalarFormatter)):
        # Fixed even if all are kept: another style would place ticks elsewhere.
        axis.set_major_locator(ticker.FixedLocator(kept))
    elif len(kept) < len(labels) and is_x:
        axis.set_ticks([*labels], [shorten_name(text.get_text()) for text in labels.values()], rotation=90)
