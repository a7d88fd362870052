"""Options and style of a figure; matplotlib is imported only when a figure is drawn."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from mu2mpi.analysis.setting_labels import Labels
from mu2mpi.core.errors import InputError, import_extra
from mu2mpi.core.files import check_readable

FIGURE_WIDTHS_INCHES = {"column": 3.3, "page": 7.0}
MIN_FIGURE_WIDTH_INCHES = 2.0  # inches
MAX_FIGURE_WIDTH_INCHES = 40.0  # inches
STYLE_SHEET = Path(__file__).with_name("figures.mplstyle")


class FigureOptions:
    """Options of a figure, mostly those of ``mu2mpi plot``; InputError if one cannot be used.

    `labels` replace those of settings and values. `user_axes`, matplotlib axes, replace a new figure.
    """

    def __init__(
        self,
        width: float | str = "page",
        title: str | None = None,
        linear: bool = False,
        style: Path | str | None = None,
        values: Sequence[str] = (),
        labels: Mapping[str, str] | None = None,
        user_axes: Any = None,
    ) -> None:
        try:
            self.width = FIGURE_WIDTHS_INCHES.get(str(width)) or float(width)
        except ValueError:
            self.width = math.nan
        if not MIN_FIGURE_WIDTH_INCHES <= self.width <= MAX_FIGURE_WIDTH_INCHES:
            limits = f"{MIN_FIGURE_WIDTH_INCHES:g} to {MAX_FIGURE_WIDTH_INCHES:g} inches"
            raise InputError(f"--width must be column, page or {limits}, got {width}")
        self.title = title
        self.linear, self.values = linear, values
        self.labels = Labels(labels or {})
        self.style = None if style is None else Path(style)
        if self.style is not None:
            check_readable(self.style)
            read_style = import_extra("matplotlib").rc_params_from_file
            try:
                read_style(self.style, fail_on_error=True, use_default_template=False)
            except (ValueError, UnicodeError) as error:
                message = " ".join(str(error).split())
                raise InputError(f"--style {style} is not a matplotlib style sheet: {message}") from None
        axes = () if user_axes is None else np.ravel(np.array(user_axes, dtype=object))
        self.user_axes: tuple[Any, ...] = tuple(axes)


DEFAULT_OPTIONS = FigureOptions()


@contextmanager
def figure_style(options: FigureOptions) -> Iterator[None]:
    """Context manager of the package's matplotlib style, without effect on axes that the user passes."""
    if options.user_axes:
        yield
        return
    # Cropping would change the width, and names from data may contain the marks of formulas.
    own = {"savefig.bbox": None, "text.parse_math": False, "text.usetex": False}
    styles = [STYLE_SHEET, *filter(None, [options.style]), own]
    with import_extra("matplotlib.style").context(styles, after_reset=True):
        yield
