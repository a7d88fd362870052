"""Rows of the model x_T as images."""

import math
from collections.abc import Sequence

import numpy as np

from mu2mpi.analysis.figures.figure import Figure, FigureOptions, Layout, best_run, run_title, shorten_name
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import register
from mu2mpi.results.reader import RunSummary, read_result

MAX_IMAGES = 64  # rows of the model
MAX_IMAGES_INCHES = 2.9  # height of all images
MIN_IMAGE_SIDE_PIXELS = 8  # pixels


@register
class WeightsFigure(Figure):
    name = "weights"

    def draw(self, runs: Sequence[RunSummary], options: FigureOptions, x_axis: str | None = None) -> Layout:
        """Draw each row of the model with the smallest test loss as a square image."""
        run = best_run(runs)
        result = read_result(run.path)
        x, limit = result.x[:, :-1], float(np.abs(result.x[:, :-1]).max()) or 1.0
        rows, side = len(x), math.isqrt(x.shape[1])
        is_image = side * side == x.shape[1] and side >= MIN_IMAGE_SIDE_PIXELS
        if not is_image or result.feature_names is not None or rows > MAX_IMAGES:
            fault = f"{run.path} has features other than square images, or more than {MAX_IMAGES} classes"
            raise InputError(f"{fault}. Use mu2mpi plot coefficients, or show --coefficients")
        image_inches = 0.85 * options.width  # of a single column
        columns = max(min(5, rows), math.ceil(math.sqrt(rows * image_inches / MAX_IMAGES_INCHES)))
        height = image_inches / columns
        layout = Layout(options, -(-rows // columns), columns, height, min_width=options.width / columns)
        for panel in layout.panels.flat:
            panel.set_axis_off()
        for panel, row, name in zip(layout.panels.flat, x, result.model_row_names, strict=False):
            # Cividis suits colour blindness and greyscale.
            image = panel.imshow(row.reshape(side, side), cmap="cividis", vmin=-limit, vmax=limit)
            panel.set_title(shorten_name(name))
        layout.add_colorbar(image, "weight (bias not shown)")
        layout.title = run_title(runs, options)
        return layout
