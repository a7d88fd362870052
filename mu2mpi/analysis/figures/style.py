"""How figures look: fonts, lines and colours that also tell apart in grey and to the colour-blind."""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mu2mpi.analysis.labels import read_labels
from mu2mpi.analysis.words import Words
from mu2mpi.errors import InputError
from mu2mpi.extra import needed
from mu2mpi.files import check_readable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
else:
    # matplotlib takes long, and may be missing until something is drawn.
    Axes = Figure = Any

WIDTHS = {"column": 3.3, "page": 7.0}
"""Inches: one column of a paper, and two."""

NARROWEST, WIDEST = 2.0, 40.0
"""Inches that a figure may be wide."""

DASHES: Sequence[Any] = ("-", (0, (5, 1.6)), (0, (1.2, 1.2)), (0, (6, 1.4, 1.2, 1.4)), (0, (3, 3)))
MARKERS = "osD^v"
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "oo", "++", "--")

SETTINGS = {
    # The font that comes with matplotlib, so that a figure is the same everywhere.
    "font.family": "DejaVu Sans", "font.size": 8, "figure.dpi": 144,
    # All text has the size that is said, for the width that is said.
    **dict.fromkeys(("axes.titlesize", "axes.labelsize", "legend.fontsize", "legend.title_fontsize",
                     "xtick.labelsize", "ytick.labelsize", "figure.titlesize"), "medium"),
    "axes.titlepad": 4,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True,
    "grid.linewidth": 0.5, "grid.alpha": 0.25, "hatch.linewidth": 0.5,
    "lines.linewidth": 1.4, "lines.markersize": 3.6, "legend.frameon": False, "legend.handlelength": 3.0,
    "savefig.dpi": 200, "svg.fonttype": "path", "svg.hashsalt": "mu2mpi", "pdf.fonttype": 42,
    "pgf.rcfonts": False,
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


LIGHT = Theme(ink="#1a1a1a", paper="white", first=0.0, last=0.82)
DARK = Theme(ink="#e6e6e6", paper="#16181c", first=0.28, last=1.0)


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
    axes: tuple[Axes, ...] = ()
    """The user's own, which are drawn into, in their own style and size."""
    scored: bool = False
    """Whether the panels of losses will do where there are fewer axes."""


PAGE = Page()


def page_of(
    width: float | str = "page",
    title: str | None = None,
    linear: bool = False,
    labels: Mapping[str, str] | Path | str | Sequence[str] = (),
    style: Path | str | None = None,
    axes: Any = None,
) -> Page:
    """Return what the user says of a figure, or raise an InputError.

    `width` is in inches or one of `WIDTHS`, `labels` are as `read_labels` takes them, and `axes` one or many.
    """
    try:
        inches = WIDTHS.get(str(width)) or float(width)
    except ValueError:
        inches = math.nan
    if not NARROWEST <= inches <= WIDEST:
        raise InputError(
            f"a figure is {' or '.join(WIDTHS)} wide, or {NARROWEST:g} to {WIDEST:g} inches, not {width}"
        )
    sheet = None if style is None else Path(style)
    if sheet is not None:
        check_style(sheet)
    given = () if axes is None else tuple(np.ravel(np.array(axes, dtype=object)))
    return Page(LIGHT, inches, title, linear, Words(read_labels(labels)), sheet, given)


def check_style(path: Path) -> None:
    """Raise an InputError unless a file is a style sheet that matplotlib takes."""
    check_readable(path)
    heard: list[str] = []
    matplotlib, log = needed("matplotlib"), logging.getLogger("matplotlib")
    listener = logging.Handler()
    listener.emit = lambda record: heard.append(record.getMessage())  # type: ignore[method-assign]
    # What it does not know, matplotlib only logs.
    passed_on, log.propagate = log.propagate, False
    log.addHandler(listener)
    try:
        matplotlib.rc_params_from_file(path, fail_on_error=True, use_default_template=False)
    except (ValueError, UnicodeError) as error:
        heard.append(str(error))
    finally:
        log.removeHandler(listener)
        log.propagate = passed_on
    if heard:
        raise InputError(f"{path} is no style sheet of matplotlib: {' '.join(heard[0].split())}")


@contextmanager
def styled(page: Page) -> Iterator[None]:
    """Draw in this project's style inside the block, whatever the user's own settings are."""
    theme, matplotlib = page.theme, needed("matplotlib")
    ink = dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.edgecolor", "axes.titlecolor", "xtick.color", "ytick.color",
         "grid.color", "hatch.color"), theme.ink,
    )  # fmt: skip
    paper = dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), theme.paper)
    if page.axes:
        # The user's own style holds on the user's own axes.
        yield
        return
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({**SETTINGS, **ink, **paper})
        if page.style is not None:
            needed("matplotlib.style").use(page.style)
            # A style that crops figures would change the width that was asked for.
            matplotlib.rcParams["savefig.bbox"] = None
        yield


def canvas(
    page: Page,
    rows: int,
    columns: int,
    height: float,
    titles: Sequence[str] = (),
    *,
    stacks: bool = True,
    **options: Any,
) -> tuple[Figure, Any]:
    """Return a figure and its axes, shape (rows, columns), with titles above the first row.

    `height` is that of a figure as wide as a page, with labels and a legend of one line each; it grows with
    these, so that axes keep their height. On a narrow figure all panels are in one column, if it `stacks`.
    """
    from mu2mpi.analysis.figures.sheet import Borrowed, Sheet

    figure: Any
    if page.axes:
        figure = Borrowed(page.axes, rows, columns, page.scored)
        axes = figure.panels
    else:
        figure = Sheet(figsize=(page.width, height))
        axes = figure.subplots(rows, columns, squeeze=False, **options)
        figure.prepare(axes, stacks)
    for panel, title in zip(axes[0], titles, strict=False):
        panel.set_title(title, loc="left")
    return figure, axes


def handle(label: str, /, **style: Any) -> Any:
    """Return a line for a legend that stands for itself."""
    return needed("matplotlib.lines").Line2D([], [], **{**style, "label": label})


def dashed(style: int, mark: int) -> dict[str, Any]:
    """Return dashes and marker of these numbers, over again where there are no more."""
    return {"linestyle": DASHES[style % len(DASHES)], "marker": MARKERS[mark % len(MARKERS)]}


def with_legend(figure: Figure, handles: Sequence[Any]) -> Figure:
    """Put a legend, if there is any, below the axes, where it covers no data, in as many columns as fit."""
    if handles:
        figure.legend(handles=handles)
    return figure
