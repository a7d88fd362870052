"""The rows of x_T as images."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mu2mpi.analysis.figures.figure import Figure, Page, Sheet, short
from mu2mpi.core.registry import register
from mu2mpi.results.reader import Summary, read_result

MAX_CLASSES, MAX_NAMES = 20, 20

MIN_SIDE = 8  # Pixels along a side of the smallest image that features without names may be
SHOWN = ("data", "loss", "server", "machines", "rounds", "epsilon", "rho", "diameter", "seed")


@register
class WeightsFigure(Figure):
    name = "weights"

    def draw(self, runs: Sequence[Summary], page: Page, against: str | None = None) -> Sheet:
        """Draw an image for each row, or a strip, of the run with the smallest loss."""
        run = min(runs, key=lambda run: (math.isnan(run.test_loss), run.test_loss))
        result = read_result(run.path)
        x, features = result.x[:, :-1], result.feature_names
        names = [name if result.label_range else f"class {name}" for name in result.row_names]
        side, limit = math.isqrt(x.shape[1]), float(np.abs(x).max()) or 1.0
        # Made for the colour-blind; its lightness grows steadily, so that it reads in grey as well.
        scale: dict[str, Any] = {"cmap": "cividis", "vmin": -limit, "vmax": limit}
        if side * side == x.shape[1] and side >= MIN_SIDE and features is None and len(x) <= MAX_CLASSES:
            columns = min(5, len(x))
            high = 0.85 * page.width / columns
            sheet = Sheet(page, -(-len(x) // columns), columns, high, stacks=False)
            for panel in sheet.panels.flat:
                panel.set_axis_off()
            for panel, row, name in zip(sheet.panels.flat, x, names, strict=False):
                shown = panel.imshow(row.reshape(side, side), **scale)
                panel.set_title(short(name), loc="center")
        else:
            sheet = Sheet(page, 1, 1, 2.0 if len(x) > 2 else 0.6)
            panel = sheet.panels[0, 0]
            panel.grid(visible=False)
            panel.set_xlabel("feature (bias not shown)")
            panel.locator_params(axis="x", integer=True)
            if features is not None and len(features) <= MAX_NAMES:
                panel.set_xticks(range(len(features)), features)
            if len(x) <= MAX_CLASSES:
                panel.set_yticks(range(len(x)), map(short, names))
            else:
                panel.set_ylabel("class")
            shown = panel.imshow(x, aspect="auto", interpolation="nearest", **scale)
        sheet.add_colorbar(shown, "weight (bias not shown)" if features is None else "weight")
        own = run.own_settings
        settings = {name: own[name] for name in SHOWN if own[name] is not None}
        which = " — the run of smallest loss" if len(runs) > 1 and not math.isnan(run.test_loss) else ""
        sheet.title = f"$x_T$: {page.words.of(settings)}{which}"
        return sheet
