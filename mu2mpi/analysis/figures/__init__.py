"""Figures of result files: each module without an underscore draws one; `draw` makes any of them."""

import io
import math
from collections.abc import Sequence
from typing import Any

from mu2mpi.analysis.catalogue import FORMATS, find_figure
from mu2mpi.analysis.figures._page import PAGE, Page, page_of, styled
from mu2mpi.analysis.settings import without_repeats
from mu2mpi.core.errors import InputError
from mu2mpi.results.reader import Summary

__all__ = ["draw", "image", "page_of"]


def draw(kind: str, runs: Sequence[Summary], against: str | None = None, page: Page = PAGE) -> Any:
    """Return a matplotlib figure of `catalogue.KINDS`, independent of pyplot, with nothing to close.

    A run that is there twice counts once, and `against` is the horizontal axis, where the figure leaves a
    choice. Raises an InputError if there is no such figure or axis, or the runs do not suit it.
    """
    module = find_figure(kind, against)
    needs = getattr(module, "NEEDS", "")
    # The times of an experiment are others each time.
    kept, _ = without_repeats(runs, *(("ranks", needs) if needs == "elapsed_seconds" else ()))
    if not kept:
        raise InputError("there are no results to draw")
    without = [run.path for run in kept if math.isnan(run.row.get(needs, 0.0))]
    if without:
        raise InputError(
            f"{kind} shows {needs.replace('_', ' ')}, which {len(without)} results do not hold, such as "
            f"{without[0]}; choose others"
        )
    with styled(page):
        return module.draw(kept, page, *filter(None, [against])).finish()


def image(figure: Any, suffix: str, page: Page = PAGE) -> bytes:
    """Return a figure as the content of a file, one of `FORMATS`: the same bytes each time."""
    buffer = io.BytesIO()
    with styled(page):
        figure.savefig(buffer, format=suffix, metadata=FORMATS[suffix])
    return buffer.getvalue()
