"""The rows of the output x_T as images: what each class, or a number, looks for."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.analysis.figures.style import Figure, Page, canvas
from mu2mpi.analysis.settings import own_settings
from mu2mpi.results.reader import Summary, read_result
from mu2mpi.results.schema import Result

MOST_CLASSES, MOST_NAMES = 20, 30

LEAST_SIDE = 8
"""Pixels along a side of the smallest image that features without names may be."""

SHOWN = ("data", "loss", "server", "machines", "rounds", "epsilon", "rho", "diameter", "seed")
MAP = "cividis"
"""Made for the colour-blind; its lightness grows steadily, so it reads in grey as well."""


def draw(runs: Sequence[Summary], page: Page) -> Figure:
    """Draw an image for each row, or one strip a row where the features are no square image.

    Of several runs, the one with the smallest loss is drawn; its settings stand above.
    """
    run = min(runs, key=lambda run: (math.isnan(run.test_loss), run.test_loss))
    result = read_result(run.path)
    x, names = result.x[:, :-1], _titles(result)
    side = math.isqrt(x.shape[1])
    limit = float(np.abs(x).max()) or 1.0
    is_square = side * side == x.shape[1] and side >= LEAST_SIDE
    is_image = is_square and result.feature_names is None and len(x) <= MOST_CLASSES
    colours: dict[str, Any] = {"cmap": MAP, "vmin": -limit, "vmax": limit}
    figure = (
        _images(x.reshape(-1, side, side), names, colours, page)
        if is_image
        else _strips(x, names, result.feature_names, colours, page)
    )
    own = own_settings(run)
    settings = {name: own[name] for name in SHOWN if own[name] is not None}
    which = " — the run of smallest loss" if len(runs) > 1 and not math.isnan(run.test_loss) else ""
    figure.suptitle(f"$x_T$: {page.words.of(settings)}{which}", fontsize=9)
    return figure


def _titles(result: Result) -> list[str]:
    return [name if result.label_range else f"class {name}" for name in result.row_names]


def _images(x: NDArray[np.float64], names: Sequence[str], colours: dict[str, Any], page: Page) -> Figure:
    columns = min(5, len(x))
    rows = -(-len(x) // columns)
    figure, axes = canvas(page, rows, columns, 1.0, stacks=False)
    for panel in axes.flat:
        panel.set_axis_off()
    for k, panel in zip(range(len(x)), axes.flat, strict=False):
        shown = panel.imshow(x[k], **colours)
        panel.set_title(names[k], pad=3)
    figure.colorbar(shown, ax=axes, label="weight (bias not shown)", shrink=0.9, aspect=30)
    return figure


def _strips(
    x: NDArray[np.float64],
    names: Sequence[str],
    features: Sequence[str] | None,
    colours: dict[str, Any],
    page: Page,
) -> Figure:
    figure, axes = canvas(page, 1, 1, 3.0 if len(x) > 2 else 1.6)
    panel = axes[0, 0]
    panel.grid(visible=False)
    panel.set_xlabel("feature (bias not shown)")
    if features is not None and len(features) <= MOST_NAMES:
        panel.set_xticks(range(len(features)), features, rotation=45, ha="right", rotation_mode="anchor")
    else:
        panel.xaxis.get_major_locator().set_params(integer=True)
    if len(x) <= MOST_CLASSES:
        panel.set_yticks(range(len(x)), names)
    else:
        panel.set_ylabel("class")
    shown = panel.imshow(x, aspect="auto", interpolation="nearest", **colours)
    figure.colorbar(shown, ax=panel, label="weight")
    return figure
