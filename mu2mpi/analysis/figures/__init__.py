"""Figures of result files: one module per figure; `draw_figure` draws any of them by name."""

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mu2mpi.analysis.figures._theme import DEFAULT_OPTIONS, FigureOptions as FigureOptions, figure_style
from mu2mpi.analysis.setting_labels import drop_repeated_runs
from mu2mpi.core.errors import InputError, import_extra
from mu2mpi.core.registry import known_names, lookup
from mu2mpi.core.suggestions import one_of, suggest_or_list
from mu2mpi.results.reader import RunSummary

if TYPE_CHECKING:
    from mu2mpi.analysis.figures.figure import Figure

# Metadata of each file format, by suffix: no date, so that equal figures have equal bytes
FIGURE_FORMATS: dict[str, dict[str, None]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}


def get_figure(name: str, x_axis: str | None = None) -> "Figure":
    """Return the figure registered under a name; InputError if it, or its `x_axis`, does not exist."""
    for package in ("matplotlib", "pandas"):
        import_extra(package)
    figure: Figure = lookup("figures", name)
    if x_axis is not None and figure.x_axes is not None and x_axis not in figure.x_axes:
        hint = suggest_or_list(x_axis, figure.x_axes, "choices") if figure.x_axes else "; it has a fixed axis"
        raise InputError(f"the figure {name} cannot be drawn against {x_axis}{hint}")
    return figure


def draw_figure(
    name: str, runs: Sequence[RunSummary], x_axis: str | None = None, options: FigureOptions = DEFAULT_OPTIONS
) -> Any:
    """Return the matplotlib figure of a name, such as ``history``, from runs without their repeats.

    The horizontal axis `x_axis` is as for `Figure.draw`. InputError if the figure cannot show these runs.
    """
    figure = get_figure(name, x_axis)
    if options.values and not figure.has_value_panels:
        others = one_of(each for each in known_names("figures") if get_figure(each).has_value_panels)
        raise InputError(f"the figure {name} has no panels for --values. Use {others}")
    distinct, _ = drop_repeated_runs(runs, *figure.repetition_columns, *({"ranks"} & {x_axis}))
    lacking = [run.path for run in distinct if math.isnan(run.table_row.get(figure.required_column, 0.0))]
    if lacking:
        quantity = figure.required_column.replace("_", " ")
        raise InputError(f"{name} shows {quantity}, which {len(lacking)} results lack, such as {lacking[0]}")
    with figure_style(options):
        return figure.draw(distinct, options, x_axis).finish()


def render_figure(figure: Any, suffix: str, options: FigureOptions = DEFAULT_OPTIONS) -> bytes:
    """Return reproducible file contents of a matplotlib figure in one of `FIGURE_FORMATS`."""
    buffer = io.BytesIO()
    with figure_style(options):
        figure.savefig(buffer, format=suffix, metadata=FIGURE_FORMATS[suffix])
    return buffer.getvalue()


def figure_format(path: Path) -> str:
    """Return the image format by the suffix of a path; InputError unless it is png, svg or pdf."""
    suffix = path.suffix.lower().removeprefix(".")
    if suffix not in FIGURE_FORMATS:
        raise InputError(f"a figure is written as {', '.join(FIGURE_FORMATS)} by its suffix, not as {path}")
    return suffix
