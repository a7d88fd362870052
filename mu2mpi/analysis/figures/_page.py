"""Width, labels and style of a figure; without matplotlib until something is drawn."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mu2mpi.analysis.words import Words, read_labels
from mu2mpi.errors import InputError
from mu2mpi.extra import needed
from mu2mpi.files import check_readable

WIDTHS = {"column": 3.3, "page": 7.0}
"""Inches."""

MIN_WIDTH, MAX_WIDTH = 2.0, 40.0

INK, PAPER = "#1a1a1a", "white"

SETTINGS = {
    # The font that comes with matplotlib, so that a figure is the same everywhere.
    "font.family": "DejaVu Sans", "font.size": 8, "figure.dpi": 144,
    **dict.fromkeys(("axes.titlesize", "axes.labelsize", "legend.fontsize", "legend.title_fontsize",
                     "xtick.labelsize", "ytick.labelsize", "figure.titlesize"), "medium"),
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "axes.titlecolor", "xtick.color",
                     "ytick.color", "grid.color", "hatch.color"), INK),
    "axes.titlepad": 4, "axes.titlelocation": "left",
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True,
    "grid.linewidth": 0.5, "grid.alpha": 0.25, "hatch.linewidth": 0.5,
    "lines.linewidth": 1.4, "lines.markersize": 3.6, "legend.frameon": False, "legend.handlelength": 3.0,
    "savefig.dpi": 200, "svg.fonttype": "path", "svg.hashsalt": "mu2mpi", "pdf.fonttype": 42,
}  # fmt: skip


@dataclass(frozen=True)
class Page:
    """What the user wants of a figure."""

    width: float = WIDTHS["page"]
    """Inches."""
    title: str | None = None
    linear: bool = False
    """Whether axes are linear that are logarithmic by default."""
    words: Words = field(default_factory=Words)
    style: Path | None = None
    """Style sheet of matplotlib."""
    axes: tuple[Any, ...] = ()
    """The user's own axes, which are drawn into, in their own style and size."""


PAGE = Page()


def page_of(
    width: float | str = "page",
    title: str | None = None,
    linear: bool = False,
    labels: Mapping[str, str] | Path | str | Sequence[str] = (),
    style: Path | str | None = None,
    axes: Any = None,
) -> Page:
    """Return a page, or raise an InputError.

    `width` is in inches or one of `WIDTHS`, `labels` are as `read_labels` takes them, and `axes` one or many.
    """
    inches = WIDTHS.get(str(width), 0.0)
    with suppress(ValueError):
        inches = inches or float(width)
    if not MIN_WIDTH <= inches <= MAX_WIDTH:
        raise InputError(
            f"--width is {' or '.join(WIDTHS)}, or {MIN_WIDTH:g} to {MAX_WIDTH:g} inches, not {width}"
        )
    if style is not None:
        check_readable(Path(style))
        try:
            needed("matplotlib").rc_params_from_file(style, fail_on_error=True, use_default_template=False)
        except (ValueError, UnicodeError) as error:
            raise InputError(
                f"{style} is no style sheet of matplotlib: {' '.join(str(error).split())}"
            ) from None
    given = () if axes is None else tuple(np.ravel(np.array(axes, dtype=object)))
    sheet = None if style is None else Path(style)
    return Page(inches, title, linear, Words(read_labels(labels)), sheet, given)


@contextmanager
def styled(page: Page) -> Iterator[None]:
    """Draw in this package's style inside the block, or in the user's on the user's own axes."""
    if page.axes:
        yield
        return
    matplotlib = needed("matplotlib")
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(SETTINGS)
        if page.style is not None:
            needed("matplotlib.style").use(page.style)
            # A style that crops figures would change the width.
            matplotlib.rcParams["savefig.bbox"] = None
        yield
