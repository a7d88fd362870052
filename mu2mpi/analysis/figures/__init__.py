"""Figures of result files: one module per figure; `draw_figure` draws any of them by name."""

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mu2mpi.analysis.figures._theme import (
    DEFAULT_OPTIONS,
    FigureOptions,
    figure_options as figure_options,
    figure_style,
)
from mu2mpi.analysis.setting_labels import drop_repeats
from mu2mpi.core.errors import InputError, import_extra
from mu2mpi.core.registry import lookup
from mu2mpi.core.suggestions import suggest_or_list
from mu2mpi.results.reader import RunSummary

if TYPE_CHECKING:
    from mu2mpi.analysis.figures.figure import Figure

# Metadata of each file format, by suffix: no date, so that equal figures have equal bytes
FORMATS: dict[str, dict[str, None]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}


def get_figure(name: str, against: str | None = None) -> "Figure":
    """Return the registered figure of a name; InputError if unknown, or `against` is no axis of it."""
    for package in ("matplotlib", "pandas"):
        import_extra(package)
    figure: Figure = lookup("figures", name)
    if against is not None and against not in figure.axes:
        meant = suggest_or_list(against, figure.axes, "choices") if figure.axes else "; it has a fixed axis"
        raise InputError(f"the figure {name} cannot be drawn against {against}{meant}")
    return figure


def draw_figure(
    name: str,
    runs: Sequence[RunSummary],
    against: str | None = None,
    options: FigureOptions = DEFAULT_OPTIONS,
) -> Any:
    """Draw a figure of runs, without repeated experiments.

    Parameters
    ----------
    name : str
        Name of a registered figure, such as ``history``.
    runs : sequence of Summary
    against : str, optional
        Quantity on the horizontal axis, one of the figure's `axes`.
    options : FigureOptions, optional
        Width, title, labels and style.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    InputError
        If the figure cannot show these runs.
    """
    figure = get_figure(name, against)
    kept, _ = drop_repeats(runs, *figure.repeat_columns)
    lacking = [run.path for run in kept if math.isnan(run.table_row.get(figure.required_column, 0.0))]
    if lacking:
        quantity = figure.required_column.replace("_", " ")
        raise InputError(f"{name} shows {quantity}, which {len(lacking)} results lack, such as {lacking[0]}")
    with figure_style(options):
        return figure.draw(kept, options, against).finish()


def render_figure(figure: Any, suffix: str, options: FigureOptions = DEFAULT_OPTIONS) -> bytes:
    """Return a figure as reproducible bytes of a file in one of `FORMATS`."""
    buffer = io.BytesIO()
    with figure_style(options):
        figure.savefig(buffer, format=suffix, metadata=FORMATS[suffix])
    return buffer.getvalue()


def figure_format(path: Path) -> str:
    """Return the file format of a path by its suffix; InputError if it is not one of `FORMATS`."""
    suffix = path.suffix.lower().removeprefix(".")
    if suffix not in FORMATS:
        raise InputError(f"a figure is written as {', '.join(FORMATS)} by its suffix, not as {path}")
    return suffix
