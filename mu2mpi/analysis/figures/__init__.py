"""Figures of result files, one module each; `draw` makes any of them."""

import importlib
import io
import math
from collections.abc import Sequence
from dataclasses import replace

from mu2mpi.analysis.catalogue import FIGURES, FORMATS, TIMES, check_kind
from mu2mpi.analysis.cells import without_repeats
from mu2mpi.analysis.figures.style import PAGE, Figure, Page, page_of, styled
from mu2mpi.analysis.figures.ticks import number_logarithms
from mu2mpi.errors import InputError
from mu2mpi.results.reader import Summary

__all__ = ["draw", "image", "page_of"]


def draw(kind: str, runs: Sequence[Summary], against: str | None = None, page: Page = PAGE) -> Figure:
    """Draw one of `FIGURES`, independent of pyplot, so that there is nothing to close.

    `against` is on the horizontal axis, where there is a choice. A result that is there twice counts once.
    Raises an InputError if there is no such figure or axis, or the runs do not suit it.
    """
    check_kind(kind, against)
    facts = FIGURES[kind]
    # The times of an experiment are others each time.
    kept, _ = without_repeats(runs, *(("ranks", TIMES[0]) if facts.needs == TIMES else ()))
    if not kept:
        raise InputError("there are no results to draw")
    column, words = facts.needs or ("", "")
    without = [run.path for run in kept if math.isnan(run.row.get(column, 0.0))]
    if without:
        who = f"{without[0]} and {len(without) - 1} more hold" if len(without) > 1 else f"{without[0]} holds"
        raise InputError(f"{kind} shows {words}, and {who} none, as published files may; choose others")
    options = {} if against is None else {"against": against}
    page = replace(page, scored=facts.scored)
    with styled(page):
        figure: Figure = importlib.import_module(f"{__name__}.{kind}").draw(kept, page, **options)
        _finish(figure, page)
    return figure


def _finish(figure: Figure, page: Page) -> None:
    """Do what the user wants of every figure, and fit it, if it is not on axes of the user's."""
    if page.linear:
        for panel in page.axes or figure.axes:
            for axis in (panel.xaxis, panel.yaxis):
                if axis.get_scale() == "log":
                    panel.set(**{f"{axis.axis_name}scale": "linear"})
    for panel in page.axes or figure.axes:
        number_logarithms(panel)
    if page.title is not None:
        figure.suptitle(page.title)
    if not page.axes:
        importlib.import_module(f"{__name__}.fitting").fit(figure)


def image(figure: Figure, suffix: str, page: Page = PAGE) -> bytes:
    """Return a figure as the content of a file, one of `FORMATS`: the same bytes each time."""
    buffer = io.BytesIO()
    with styled(page):
        if suffix == "pgf":
            content: bytes = importlib.import_module(f"{__name__}.tex").as_pgf(figure)
            return content
        figure.savefig(buffer, format=suffix, metadata=FORMATS[suffix])
    return buffer.getvalue()
