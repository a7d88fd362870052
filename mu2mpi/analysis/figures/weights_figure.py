"""Rows of the model x_T as images."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mu2mpi.analysis.figures.figure import Figure, FigureOptions, Layout, shorten_name
from mu2mpi.core.registry import register
from mu2mpi.results.reader import RunSummary, read_result

MAX_LABELLED_CLASSES = 20  # rows of the model with an image or a label of their own
MAX_TICK_LABELS = 20  # features with tick labels
MIN_IMAGE_SIDE_PIXELS = 8  # pixels; features without names are drawn as a square image from this size on
TITLE_SETTINGS = ("data", "loss", "server", "machines", "rounds", "epsilon", "rho", "diameter", "seed")


@register
class WeightsFigure(Figure):
    name = "weights"

    def draw(self, runs: Sequence[RunSummary], options: FigureOptions, x_axis: str | None = None) -> Layout:
        """Draw each row of the model with the smallest test loss, as a square image or as a strip."""
        run = min(runs, key=lambda run: (math.isnan(run.test_loss), run.test_loss))
        result = read_result(run.path)
        x, features = result.x[:, :-1], result.feature_names
        names = [name if result.label_range else f"class {name}" for name in result.model_row_names]
        side, limit = math.isqrt(x.shape[1]), float(np.abs(x).max()) or 1.0
        # Cividis suits colour blindness and greyscale.
        colour_scale: dict[str, Any] = {"cmap": "cividis", "vmin": -limit, "vmax": limit}
        is_square = side * side == x.shape[1] and side >= MIN_IMAGE_SIDE_PIXELS
        if is_square and features is None and len(x) <= MAX_LABELLED_CLASSES:
            columns = min(5, len(x))
            height = 0.85 * options.width / columns
            layout = Layout(options, -(-len(x) // columns), columns, height, can_stack=False)
            for panel in layout.panels.flat:
                panel.set_axis_off()
            for panel, row, name in zip(layout.panels.flat, x, names, strict=False):
                image = panel.imshow(row.reshape(side, side), **colour_scale)
                panel.set_title(shorten_name(name), loc="center")
        else:
            layout = Layout(options, 1, 1, 2.0 if len(x) > 2 else 0.6)
            panel = layout.panels[0, 0]
            panel.grid(visible=False)
            panel.set_xlabel("feature (bias not shown)")
            panel.locator_params(axis="x", integer=True)
            if features is not None and len(features) <= MAX_TICK_LABELS:
                panel.set_xticks(range(len(features)), features)
            if len(x) <= MAX_LABELLED_CLASSES:
                panel.set_yticks(range(len(x)), map(shorten_name, names))
            else:
                panel.set_ylabel("class")
            image = panel.imshow(x, aspect="auto", interpolation="nearest", **colour_scale)
        layout.add_colorbar(image, "weight (bias not shown)" if features is None else "weight")
        chosen = run.independent_settings
        settings = {name: chosen[name] for name in TITLE_SETTINGS if chosen[name] is not None}
        suffix = " — the run of smallest loss" if len(runs) > 1 and not math.isnan(run.test_loss) else ""
        layout.title = f"$x_T$: {options.labels.settings(settings)}{suffix}"
        return layout
