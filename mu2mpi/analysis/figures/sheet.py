"""What figures are drawn on: a sheet of their own, which fits them, or axes that are the user's."""

import io
import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.colorbar import Colorbar
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.legend import Legend
from matplotlib.text import Text
from matplotlib.transforms import ScaledTranslation
from numpy.typing import NDArray

from mu2mpi.analysis.figures.wrapping import wrapped
from mu2mpi.errors import InputError

OUTSIDE, BETWEEN = 0.9, 0.15
"""Inches of a figure's height that labels and a legend of one line take, and what is between two rows."""

KEPT, LEFT = 0.5, 0.25
"""Shares of their height that a user's axes keep beside a legend below, and beside its labels too."""

LEAST, SHORTEST = 0.4, 0.7
"""Inches that a panel is high, and that there are for a label of a legend."""


class Sheet(Figure):
    """A figure that knows how high each of its panels is to be, and that shows itself in a notebook."""

    panels: NDArray[Any]
    """Its axes, but for those of colour bars, shape (rows, columns)."""
    heights: dict[Axes, float]
    """Inches of each panel."""
    stacks: bool
    heading: Text | None = None
    """The title above all panels."""
    words: dict[Text, str]
    """What texts say that are wrapped, without its lines."""

    def prepare(self, panels: NDArray[Any], stacks: bool) -> None:
        """Note the panels, and the height of each, as the figure is as high as it is to be about."""
        ratios = np.array(panels[0, 0].get_gridspec().get_height_ratios(), float)
        room = self.get_figheight() - OUTSIDE - BETWEEN * (len(ratios) - 1)
        of_rows = np.maximum(LEAST, room * ratios / ratios.sum())
        self.panels, self.stacks, self.words = panels, stacks, {}
        # How many ticks there are goes by this size, and by that of another style where nobody says it.
        size = FontProperties(size=rcParams["ytick.labelsize"]).get_size_in_points()
        for panel in panels.flat:
            panel.tick_params(labelsize=size)
        self.heights = {panel: height for row, height in zip(panels, of_rows, strict=True) for panel in row}

    @property
    def pen(self) -> RendererAgg:
        """What measures text."""
        canvas = self.canvas if isinstance(self.canvas, FigureCanvasAgg) else FigureCanvasAgg(self)
        pen: RendererAgg = canvas.get_renderer()
        return pen

    def suptitle(self, t: str, **_: Any) -> Text:
        """Put a title above all panels, in the size of other text, in place of one that is there."""
        self.heading = super().suptitle(t)
        return self.heading

    def legend(self, handles: Sequence[Any]) -> Legend:  # type: ignore[override]
        """Put a legend below all panels, in as many columns as fit, with labels as long as fit."""
        labels, columns = columns_of([handle.get_label() for handle in handles], self)
        return super().legend(handles=handles, labels=labels, loc="lower center", ncols=columns)

    def _repr_png_(self) -> bytes:
        """Return the picture that a notebook shows where matplotlib has not set up one of its own."""
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=self.dpi)
        return buffer.getvalue()


def columns_of(labels: Sequence[str], sheet: Sheet) -> tuple[list[str], int]:
    """Return the labels of a legend in lines, and the number of columns that makes it lowest."""
    style: Any = rcParams
    font = FontProperties(size=style["legend.fontsize"])
    letter = font.get_size_in_points() / 72
    key, gap, around = (
        letter * sum(style[f"legend.{name}"] for name in names)
        for names in (("handlelength", "handletextpad"), ("columnspacing",), ("borderpad", "borderaxespad"))
    )
    room, ruler = sheet.get_figwidth() - 2 * around, Text(fontproperties=font, figure=sheet)
    found: list[tuple[int, int, list[str]]] = []
    for count in range(1, len(labels) + 1):
        # Columns as wide as they need be, or else alike, with lines that are broken.
        for longest in (room - key, max(SHORTEST, (room - gap * (count - 1)) / count - key)):
            lines = [wrapped(ruler, label, longest, sheet.pen) for label in labels]
            # They are filled one after the other, the first ones longer by one, as `array_split` does it.
            columns = np.array_split(lines, count)
            wide = sum(key + max(_width(ruler, line, sheet.pen) for line in column) for column in columns)
            broken = max(line.count("\n") for line in lines)
            if wide + gap * (count - 1) <= room and (count == 1 or broken < 2):
                high = max(sum(1 + line.count("\n") for line in column) for column in columns)
                # A label is broken where that saves two lines, not for one.
                found.append((high + bool(broken), count, lines))
                break
    _, count, lines = min(found)
    return lines, count


def _width(ruler: Text, text: str, pen: RendererAgg) -> float:
    """Return how many inches wide a text is."""
    ruler.set_text(text)
    return float(ruler.get_window_extent(pen).width / pen.dpi)


class Borrowed:
    """The user's axes in place of a figure, of which everything beside them is left as it is.

    Where they are as many as the panels of losses, the others are drawn on a sheet that nobody sees.
    """

    def __init__(self, given: Sequence[Axes], rows: int, columns: int, scored: bool) -> None:
        self.panels = Figure().subplots(rows, columns, squeeze=False)
        losses = self.panels[0] if rows > 1 else self.panels[:, 0]
        some = losses if scored else self.panels.ravel()
        if len(given) not in {self.panels.size, len(some)}:
            fewer = f", or {len(some)} for the loss alone" if len(some) < self.panels.size else ""
            raise InputError(
                f"this figure has {self.panels.size} panels, so ax= is to be as many axes{fewer}, "
                f"not {len(given)}"
            )
        seen = some if len(given) == len(some) else self.panels.ravel()
        where = np.isin(self.panels, seen)
        self.panels[where] = np.array(given, dtype=object)
        self.seen = [*given]

    def legend(self, handles: Sequence[Any]) -> Legend:
        """Put a legend below the last of the axes, in as many columns as it is wide, and make room for it."""
        panel = self.seen[-1]
        root: Any = panel.get_figure(root=True)
        box = panel.get_tightbbox()
        depth = 0.0 if box is None else max(0.0, panel.bbox.y0 - box.y0) / root.dpi
        below = panel.transAxes + ScaledTranslation(0, -depth, panel.figure.dpi_scale_trans)
        place: Any = {"loc": "upper center", "bbox_to_anchor": (0.5, 0), "bbox_transform": below}
        place |= {"handlelength": 1.6, "columnspacing": 1.0, "labelspacing": 0.3, "frameon": False}
        room, highest = panel.bbox.width if box is None else box.width, (1 - KEPT) * panel.bbox.height
        for size, count in product(("small", "x-small", "xx-small"), range(len(handles), 0, -1)):
            legend = panel.legend(handles=handles, ncols=count, fontsize=size, **place)
            found = legend.get_window_extent()
            if found.width <= room and found.height <= highest:
                break
        if root.get_layout_engine() is None:
            self._raise(max(0.0, panel.figure.bbox.y0 - found.y0))
        return legend

    def _raise(self, missing: float) -> None:
        """Raise the lower edge of the last of the axes, and of those beside it, by so many pixels."""
        last = self.seen[-1].get_position()
        by = min(missing / self.seen[-1].figure.bbox.height, (1 - LEFT) * last.height)
        for panel in self.seen:
            box = panel.get_position()
            if math.isclose(box.y0, last.y0):
                panel.set_position((box.x0, box.y0 + by, box.width, box.height - by))

    def suptitle(self, text: str, **_: Any) -> Text:
        """Put a title above the first of the axes."""
        return self.seen[0].set_title(text)

    def colorbar(self, shown: Any, ax: Any, **options: Any) -> Colorbar:
        """Put a colour bar beside all of the axes."""
        figure: Any = self.seen[0].figure
        bar: Colorbar = figure.colorbar(shown, ax=self.seen, **options)
        return bar
