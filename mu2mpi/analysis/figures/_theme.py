"""Width, labels and style of a figure; without matplotlib until something is drawn."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mu2mpi.analysis.setting_labels import Labels, Words, read_labels
from mu2mpi.core.errors import InputError, needed
from mu2mpi.core.files import check_readable

WIDTHS = {"column": 3.3, "page": 7.0}
MIN_WIDTH, MAX_WIDTH = 2.0, 40.0  # Inches
INK, PAPER = "#1a1a1a", "white"
STYLE = Path(__file__).with_name("figures.mplstyle")


@dataclass(frozen=True)
class Page:
    """What the user wants of a figure: its width in inches, and whether no axis is logarithmic by default."""

    width: float = WIDTHS["page"]
    title: str | None = None
    linear: bool = False
    words: Words = field(default_factory=Words)
    style: Path | None = None
    axes: tuple[Any, ...] = ()  # the user's own, which are drawn into in their own style and size


PAGE = Page()


def page_of(
    width: float | str = "page",
    title: str | None = None,
    linear: bool = False,
    labels: Labels = (),
    style: Path | str | None = None,
    axes: Any = None,
) -> Page:
    """Return a page with a width in inches or one of `WIDTHS`, labels as of `read_labels`, and own axes."""
    try:
        inches = WIDTHS.get(str(width)) or float(width)
    except ValueError:
        inches = math.nan
    if not MIN_WIDTH <= inches <= MAX_WIDTH:
        raise InputError(f"--width is column, page or {MIN_WIDTH:g} to {MAX_WIDTH:g} inches, not {width}")
    if style is not None:
        check_readable(style := Path(style))
        try:
            needed("matplotlib").rc_params_from_file(style, fail_on_error=True, use_default_template=False)
        except (ValueError, UnicodeError) as error:
            message = " ".join(str(error).split())
            raise InputError(f"{style} is no style sheet of matplotlib: {message}") from None
    own = () if axes is None else tuple(np.ravel(np.array(axes, dtype=object)))
    return Page(inches, title, linear, Words(read_labels(labels)), style, own)


@contextmanager
def styled(page: Page) -> Iterator[None]:
    """Draw in this package's style inside the block, or in the user's on the user's own axes."""
    if page.axes:
        yield
        return
    # A style that crops figures would change the width.
    styles = [STYLE, *filter(None, [page.style]), {"savefig.bbox": None}]
    with needed("matplotlib.style").context(styles, after_reset=True):
        yield
