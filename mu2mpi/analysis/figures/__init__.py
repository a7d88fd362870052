"""Figures of result files, one module each; `draw` makes any of them."""

import importlib
import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mu2mpi.analysis.cells import without_repeats
from mu2mpi.analysis.figures.style import LIGHT, Theme, styled
from mu2mpi.analysis.kinds import AGAINST, check_kind
from mu2mpi.errors import InputError
from mu2mpi.results.reader import Summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw", "image"]

NEEDED = {
    "history": ("test_loss", "test loss"),
    "tradeoff": ("test_loss", "test loss"),
    "comparison": ("test_loss", "test loss"),
    "timing": ("elapsed_seconds", "times"),
    "scaling": ("elapsed_seconds", "times"),
}
"""What figures cannot do without, and a published file may be without."""


def draw(kind: str, runs: Sequence[Summary], against: str | None = None, theme: Theme = LIGHT) -> "Figure":
    """Draw a figure.

    Parameters
    ----------
    kind : str
        One of `mu2mpi.analysis.kinds.KINDS`.
    runs : sequence of Summary
        Results; one that is there twice counts once.
    against : str, optional
        What is on the horizontal axis, for those kinds that leave a choice.
    theme : Theme, optional
        Colours for light or dark paper.

    Returns
    -------
    matplotlib.figure.Figure
        Independent of pyplot, so that there is nothing to close.

    Raises
    ------
    InputError
        If there is no such kind or axis, or the runs do not suit it.
    """
    check_kind(kind, against)
    axes = AGAINST.get(kind, ())
    kept, _ = without_repeats(runs, by_ranks=kind in ("timing", "scaling"))
    if not kept:
        raise InputError("there are no results to draw")
    _check_needed(kind, kept)
    options: dict[str, Any] = {"against": against or axes[0]} if axes else {}
    with styled(theme):
        module = importlib.import_module(f"{__name__}.{kind}")
        figure: Figure = module.draw(kept, theme, **options)
    return figure


def _check_needed(kind: str, runs: Sequence[Summary]) -> None:
    """Make sure that all runs hold what a figure shows."""
    name, words = NEEDED.get(kind, ("", ""))
    without = [run.path for run in runs if math.isnan(run.row().get(name, 0.0))]
    if without:
        who = f"{without[0]} and {len(without) - 1} more hold" if len(without) > 1 else f"{without[0]} holds"
        raise InputError(f"{kind} shows {words}, and {who} none, as published files may; choose others")


def image(figure: "Figure", suffix: str, theme: Theme = LIGHT) -> bytes:
    """Return a figure as the content of a file, ``png``, ``svg`` or ``pdf``: the same bytes each time."""
    undated: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}[suffix]
    buffer = io.BytesIO()
    with styled(theme):
        figure.savefig(buffer, format=suffix, metadata=undated)
    return buffer.getvalue()
