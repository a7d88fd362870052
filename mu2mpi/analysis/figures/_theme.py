"""Options and style of a figure; matplotlib is imported only when a figure is drawn."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mu2mpi.analysis.setting_labels import Labels, LabelsArgument, parse_labels
from mu2mpi.core.errors import InputError, import_extra
from mu2mpi.core.files import check_readable

FIGURE_WIDTHS_INCHES = {"column": 3.3, "page": 7.0}
MIN_FIGURE_WIDTH_INCHES = 2.0  # inches
MAX_FIGURE_WIDTH_INCHES = 40.0  # inches
FOREGROUND = "#1a1a1a"
BACKGROUND = "white"
STYLE_SHEET = Path(__file__).with_name("figures.mplstyle")


@dataclass(frozen=True)
class FigureOptions:
    """Options of a figure, as in ``mu2mpi plot``: width, title, labels, style sheet and axes."""

    width: float = FIGURE_WIDTHS_INCHES["page"]  # inches
    title: str | None = None  # None: the figure's own
    linear: bool = False  # whether logarithmic axes become linear
    labels: Labels = field(default_factory=Labels)
    style: Path | None = None  # a matplotlib style sheet of the user's
    user_axes: tuple[Any, ...] = ()  # matplotlib axes to draw on, in place of a new figure


DEFAULT_OPTIONS = FigureOptions()


def figure_options(
    width: float | str = "page",
    title: str | None = None,
    linear: bool = False,
    labels: LabelsArgument = (),
    style: Path | str | None = None,
    user_axes: Any = None,
) -> FigureOptions:
    """Return validated options of a figure.

    Parameters
    ----------
    width : float or str
        Inches, or a key of `FIGURE_WIDTHS_INCHES`.
    labels : str or sequence of str
        Labels of settings, as for `parse_labels`.
    style : path, optional
        matplotlib style sheet.
    user_axes : matplotlib axes, optional
        Axes to draw on.

    Raises
    ------
    InputError
        If the width is out of range, or a file cannot be used.
    """
    try:
        inches = FIGURE_WIDTHS_INCHES.get(str(width)) or float(width)
    except ValueError:
        inches = math.nan
    if not MIN_FIGURE_WIDTH_INCHES <= inches <= MAX_FIGURE_WIDTH_INCHES:
        limits = f"{MIN_FIGURE_WIDTH_INCHES:g} to {MAX_FIGURE_WIDTH_INCHES:g} inches"
        raise InputError(f"--width must be column, page or {limits}, got {width}")
    if style is not None:
        check_readable(style := Path(style))
        try:
            matplotlib = import_extra("matplotlib")
            matplotlib.rc_params_from_file(style, fail_on_error=True, use_default_template=False)
        except (ValueError, UnicodeError) as error:
            message = " ".join(str(error).split())
            raise InputError(f"--style {style} is not a matplotlib style sheet: {message}") from None
    axes = () if user_axes is None else tuple(np.ravel(np.array(user_axes, dtype=object)))
    return FigureOptions(inches, title, linear, Labels(parse_labels(labels)), style, axes)


@contextmanager
def figure_style(options: FigureOptions) -> Iterator[None]:
    """Context manager of the package's matplotlib style, without effect on axes that the user passes."""
    if options.user_axes:
        yield
        return
    # Cropping would change the width.
    styles = [STYLE_SHEET, *filter(None, [options.style]), {"savefig.bbox": None}]
    with import_extra("matplotlib.style").context(styles, after_reset=True):
        yield
