"""Figures of result files: each module without an underscore defines one; `draw` draws any of them."""

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mu2mpi.analysis.figures._theme import PAGE, Page, page_of as page_of, styled
from mu2mpi.analysis.setting_labels import without_repeats
from mu2mpi.core.errors import InputError, needed
from mu2mpi.core.registry import find
from mu2mpi.core.suggestions import or_else
from mu2mpi.results.reader import Summary

if TYPE_CHECKING:
    from mu2mpi.analysis.figures.figure import Figure

# File formats by suffix, with the metadata that leaves the date out
FORMATS: dict[str, dict[str, None]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}


def find_figure(name: str, against: str | None = None) -> "Figure":
    """Return the figure of this name, or raise an InputError if there is none, or it has no such axis."""
    for package in ("matplotlib", "pandas"):
        needed(package)
    figure: Figure = find("figures", name)
    if against is not None and against not in figure.axes:
        meant = or_else(against, figure.axes, "choices") if figure.axes else "; it leaves no choice"
        raise InputError(f"the figure {name} is not drawn against {against}{meant}")
    return figure


def draw(name: str, runs: Sequence[Summary], against: str | None = None, page: Page = PAGE) -> Any:
    """Return a matplotlib figure of runs, each counted once; InputError if they do not suit it."""
    figure = find_figure(name, against)
    kept, _ = without_repeats(runs, *figure.repeats_differ_in)
    without = [run.path for run in kept if math.isnan(run.row.get(figure.needs, 0.0))]
    if without:
        needs = figure.needs.replace("_", " ")
        raise InputError(f"{name} shows {needs}, which {len(without)} results lack, such as {without[0]}")
    with styled(page):
        return figure.draw(kept, page, against).finish()


def image(figure: Any, suffix: str, page: Page = PAGE) -> bytes:
    """Return a figure as the content of a file, one of `FORMATS`: the same bytes each time."""
    buffer = io.BytesIO()
    with styled(page):
        figure.savefig(buffer, format=suffix, metadata=FORMATS[suffix])
    return buffer.getvalue()


def suffix_of(path: Path) -> str:
    """Return the format that the suffix of a file asks for, or raise an InputError."""
    suffix = path.suffix.lower().removeprefix(".")
    if suffix not in FORMATS:
        raise InputError(f"a figure is written as {', '.join(FORMATS)} by its suffix, not as {path}")
    return suffix
