"""How figures look: fonts, lines and colours that also tell apart in grey and to the colour-blind."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mu2mpi.analysis.words import Words
from mu2mpi.extra import needed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
else:
    # matplotlib takes long, and may be missing until something is drawn.
    Axes = Figure = Any

WIDTHS = {"column": 3.3, "page": 7.0}
"""Inches: one column of a paper, and two."""

LETTERS = 106
"""How many letters of the legend's size fit across; the line before a label takes the place of ten."""

DASHES: Sequence[Any] = ("-", (0, (5, 1.6)), (0, (1.2, 1.2)), (0, (6, 1.4, 1.2, 1.4)), (0, (3, 3)))
MARKERS = "osD^v"
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "oo", "++", "--")

SETTINGS = {
    # The font that comes with matplotlib, so that a figure is the same everywhere.
    "font.family": "DejaVu Sans", "font.size": 8.5, "axes.titlesize": 9,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True,
    "grid.linewidth": 0.5, "grid.alpha": 0.25, "hatch.linewidth": 0.5,
    "lines.linewidth": 1.4, "lines.markersize": 3.6, "legend.frameon": False, "legend.handlelength": 3.0,
    "savefig.dpi": 200, "svg.fonttype": "path", "svg.hashsalt": "mu2mpi", "pdf.fonttype": 42,
}  # fmt: skip


@dataclass(frozen=True)
class Theme:
    """Colours for one kind of background."""

    ink: str
    paper: str
    first: float
    last: float
    """From `first` to here, viridis, whose lightness grows steadily, stands out from the paper."""

    def colours(self, count: int) -> list[Any]:
        """Return colours whose order is that of their lightness."""
        steps = [self.first + (self.last - self.first) * k / max(1, count - 1) for k in range(count)]
        return list(needed("matplotlib").colormaps["viridis"](steps))


LIGHT = Theme(ink="#1a1a1a", paper="white", first=0.0, last=0.78)
DARK = Theme(ink="#e6e6e6", paper="#16181c", first=0.35, last=1.0)


@dataclass(frozen=True)
class Page:
    """What a figure is drawn for: a background, a width in inches, and what its user wants of it."""

    theme: Theme = LIGHT
    width: float = WIDTHS["page"]
    title: str | None = None
    linear: bool = False
    """Whether axes are linear that are logarithmic by themselves."""
    words: Words = field(default_factory=Words)
    """What settings are called."""
    style: Path | None = None
    """A style sheet of matplotlib, which has the last word."""


PAGE = Page()


@contextmanager
def styled(page: Page) -> Iterator[None]:
    """Draw in this project's style inside the block, whatever the user's own settings are."""
    theme, matplotlib = page.theme, needed("matplotlib")
    ink = dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.edgecolor", "axes.titlecolor", "xtick.color", "ytick.color",
         "grid.color", "hatch.color"), theme.ink,
    )  # fmt: skip
    paper = dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), theme.paper)
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({**SETTINGS, **ink, **paper})
        if page.style is not None:
            needed("matplotlib.style").use(page.style)
        yield


def canvas(
    page: Page, rows: int, columns: int, height: float, titles: Sequence[str] = (), **options: Any
) -> tuple[Figure, Any]:
    """Return a new figure of full width and its axes, shape (rows, columns), with titles above the first."""
    figure = needed("matplotlib.figure").Figure(figsize=(page.width, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    for panel, title in zip(axes[0], titles, strict=False):
        panel.set_title(title, loc="left")
    return figure, axes


def handle(label: str, **style: Any) -> Any:
    """Return a line for a legend that stands for itself."""
    return needed("matplotlib.lines").Line2D([], [], label=label, **style)


def dashed(style: int, mark: int) -> dict[str, Any]:
    """Return dashes and marker of these numbers, over again where there are no more."""
    return {"linestyle": DASHES[style % len(DASHES)], "marker": MARKERS[mark % len(MARKERS)]}


def with_legend(figure: Figure, handles: Sequence[Any]) -> Figure:
    """Put a legend, if there is any, below the axes, where it covers no data, in as many columns as fit."""
    lengths = [len(handle.get_label()) + 10 for handle in handles]
    # Columns are filled one after the other, the first ones longer by one, as `array_split` does it.
    fitting = (n for n in range(len(handles), 1, -1) if sum(map(max, np.array_split(lengths, n))) <= LETTERS)
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=next(fitting, 1))
    return figure
