"""Room for every text of a figure that is drawn: measured, wrapped, thinned out, and the figure made as high.

Axes keep the height that they were drawn for, and share the width that is left beside their labels.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.font_manager import FontProperties
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator
from matplotlib.transforms import Bbox
from numpy.typing import NDArray

from mu2mpi.analysis.figures.sheet import LEAST, Sheet
from mu2mpi.analysis.figures.wrapping import shorten, wrap

STACKED, HIGHEST = 5.0, 0.55
"""Figures narrower than so many inches have one column of panels, no higher than this share of the width."""

NAMES, LONGEST = 0.36, 1.3
"""Share of a figure's width that names beside its axes have, and inches that those below them have."""

DENSEST = 0.95
"""Share of the room between names upright that their letters take, at most."""

PAD, GAP, BAR = 0.05, 0.08, 0.09
"""Inches around everything, between panels, and of a colour bar's width."""

PASSES, NEAR = 5, 0.01
"""At most, until labels change by less than so many inches, as their number depends on the room they have."""


def fit(sheet: Sheet) -> None:
    """Give every text its room, and the figure the height that this takes."""
    if sheet.stacks and sheet.get_figwidth() < STACKED and sheet.panels.shape[1] > 1:
        _stack(sheet)
    if sheet.heading is not None:
        _wrap(sheet.heading, sheet.get_figwidth() - 2 * PAD, sheet)
    for panel in sheet.panels.flat:
        panel.set_label(", ".join(filter(None, [panel.get_ylabel(), panel.get_title(loc="left")])))
        _wrap_names_beside(panel, sheet)
    # Twice, as what is around panels is known once these have about their size.
    _place(sheet)
    before = _place(sheet)
    for _ in range(PASSES):
        # Not a generator: all of them are to be fitted.
        changed = [_fit_to_axes(panel, sheet) for panel in sheet.axes]
        around = _place(sheet)
        if not any(changed) and np.allclose(around, before, atol=NEAR):
            break
        before = around


def _stack(sheet: Sheet) -> None:
    """Put all panels into one column, each with the title and the labels that others had for it as well."""
    for (row, column), panel in np.ndenumerate(sheet.panels):
        first, last = sheet.panels[row, 0], sheet.panels[-1, column]
        panel.set_ylabel(panel.get_ylabel() or first.get_ylabel())
        panel.set_title(panel.get_title(loc="left") or first.get_title(loc="left"), loc="left")
        panel.set_xlabel(panel.get_xlabel() or last.get_xlabel())
        sheet.heights[panel] = min(sheet.heights[panel], HIGHEST * sheet.get_figwidth())
    for panel in sheet.panels.flat:
        if not panel.axison:
            panel.remove()
    kept = [panel for panel in sheet.panels.T.flat if panel in sheet.axes]
    for panel, below in zip(kept, [*kept[1:], None], strict=True):
        shares = below is not None and below in panel.get_shared_x_axes().get_siblings(panel)
        panel.tick_params(which="both", labelleft=True, labelbottom=not shares)
        if shares:
            panel.set_xlabel("")
    sheet.panels = np.array(kept, dtype=object)[:, None]


def _place(sheet: Sheet) -> NDArray[np.float64]:
    """Give columns of panels equal widths beside what is around them, and each row its height.

    Return what was around them.
    """
    grid, bars = sheet.panels, [panel for panel in sheet.axes if panel not in sheet.panels]
    around = np.array([[_around(panel, sheet) for panel in row] for row in grid])
    left, bottom, right, top = np.moveaxis(around, -1, 0)
    width, beside = sheet.get_figwidth(), [_around(bar, sheet) for bar in bars]
    taken = sum(GAP + of[0] + BAR + of[2] for of in beside) + 2 * PAD + GAP * (grid.shape[1] - 1)
    column = (width - taken - left.max(axis=0).sum() - right.max(axis=0).sum()) / grid.shape[1]
    column = max(column, LEAST)
    heights = [max(_height(panel, column, sheet) for panel in row) for row in grid]
    head, foot = (
        PAD if text is None else 2 * PAD + text.get_window_extent(sheet.pen).height / sheet.dpi
        for text in (sheet.heading, next(iter(sheet.legends), None))
    )
    rows = sum(heights) + top.max(axis=1).sum() + bottom.max(axis=1).sum() + GAP * (grid.shape[0] - 1)
    height = head + rows + foot
    sheet.set_figheight(height)
    if sheet.heading is not None:
        sheet.heading.set_y(1 - PAD / height)

    def put(panel: Axes, x: float, y: float, wide: float, high: float) -> None:
        panel.set_position((x / width, y / height, wide / width, high / height))

    y = height - head
    for i, high in enumerate(heights):
        y -= top[i].max() + high
        x = PAD
        for j, panel in enumerate(grid[i]):
            x += left[:, j].max()
            put(panel, x, y, column, high)
            x += column + right[:, j].max() + GAP
        y -= bottom[i].max() + GAP
    low, high = grid[-1, 0].get_position().y0 * height, grid[0, 0].get_position().y1 * height
    for bar, of in zip(bars, beside, strict=True):
        bar.set_box_aspect(None)
        put(bar, x + of[0], low, BAR, high - low)
        x += of[0] + BAR + of[2] + GAP
    return np.array([*around.reshape(-1, 4), *beside])


def _around(panel: Axes, sheet: Sheet) -> NDArray[np.float64]:
    """Return how far what belongs to a panel goes beyond it: left, below, right and above, in inches."""
    panel.apply_aspect()
    box = panel.get_tightbbox(sheet.pen, for_layout_only=True) or panel.bbox
    beyond = np.array([panel.bbox.p0 - box.p0, box.p1 - panel.bbox.p1]).ravel() / sheet.dpi
    return np.maximum(0.0, beyond)


def _height(panel: Axes, width: float, sheet: Sheet) -> float:
    """Return how high a panel is to be: pictures keep the shape of their pixels."""
    aspect = panel.get_aspect()
    return sheet.heights[panel] if aspect == "auto" else float(width * panel.get_data_ratio() * aspect)


def _wrap_names_beside(panel: Axes, sheet: Sheet) -> None:
    """Wrap the names on a vertical axis to their share of the figure's width."""
    if _has_names(panel.yaxis):
        labels = panel.get_yticklabels()
        for label in labels:
            _wrap(label, NAMES * sheet.get_figwidth(), sheet)
        panel.set_yticks(panel.get_yticks(), [label.get_text() for label in labels])


def _wrap(text: Text, room: float, sheet: Sheet) -> bool:
    """Wrap a text anew, as the room for it may have grown since it was wrapped."""
    return wrap(text, sheet.words.setdefault(text, text.get_text()), room, sheet.pen)


def _has_names(axis: Axis) -> bool:
    """Return whether ticks are called by anything but numbers."""
    return not all(_is_number(label.get_text()) for _, label in _labels(axis))


def _is_number(text: str) -> bool:
    try:
        return "$" in text or not math.isnan(
            float(text.translate({ord("−"): "-", ord(","): "", ord("∞"): "inf"}))
        )
    except ValueError:
        return False


def _fit_to_axes(panel: Axes, sheet: Sheet) -> bool:
    """Fit what goes along the axes of a panel, and return whether its place is to be found again."""
    width, height = panel.bbox.width / sheet.dpi, panel.bbox.height / sheet.dpi
    texts = [(panel.xaxis.label, width), (panel.yaxis.label, height)]
    if title := panel.get_title(loc="left"):
        texts.append((panel.set_title(title, loc="left"), width))
    changed = [_wrap(text, room, sheet) for text, room in texts if text.get_text()]
    return any([*changed, _fit_across(panel, sheet), _fit_upwards(panel, sheet)])


def _fit_across(panel: Axes, sheet: Sheet) -> bool:
    """Write names upright, and thin out numbers, that cover each other on the horizontal axis."""
    axis, found = panel.xaxis, _labels(panel.xaxis)
    boxes = _boxes(found, sheet)
    if _has_names(axis) and found[0][1].get_rotation():
        return _fit_upright(axis, found, boxes)
    if _apart(boxes, "x"):
        return False
    if _has_names(axis):
        axis.set_tick_params(rotation=90)
        for _, label in found:
            shorten(label, LONGEST, sheet.pen)
        axis.set_ticks(axis.get_ticklocs(), [label.get_text() for label in axis.get_ticklabels()])
    else:
        _thin_out(axis, found, boxes, "x")
    return True


def _fit_upright(axis: Axis, found: Sequence[tuple[float, Text]], boxes: Sequence[Bbox]) -> bool:
    """Write upright names as small as they need be, as none can be left out, and return if that is new."""
    if len(found) < 2:
        return False
    whole = FontProperties(size=rcParams["xtick.labelsize"]).get_size_in_points()
    now = float(found[0][1].get_fontsize())
    middles = sorted((box.x0 + box.x1) / 2 for box in boxes)
    room = min(after - before for before, after in pairwise(middles))
    size = min(whole, DENSEST * now * room / max(box.width for box in boxes))
    if abs(size - now) < NEAR * whole:
        return False
    axis.set_tick_params(labelsize=size)
    return True


def _fit_upwards(panel: Axes, sheet: Sheet) -> bool:
    """Make a panel as high as names beside it need, and thin out numbers that cover each other."""
    found = _labels(panel.yaxis)
    boxes = _boxes(found, sheet)
    if _apart(boxes, "y"):
        return False
    if _has_names(panel.yaxis):
        centres = np.array([(box.y0 + box.y1) / 2 for box in boxes])
        sizes = np.array([box.height for box in boxes])
        order = np.argsort(centres)
        needed = (sizes[order][1:] + sizes[order][:-1]) / 2 / np.diff(centres[order])
        sheet.heights[panel] *= 1.05 * float(needed.max())
    else:
        _thin_out(panel.yaxis, found, boxes, "y")
    return True


def _labels(axis: Axis) -> list[tuple[float, Text]]:
    """Return the place and the text of each label that is seen, the important ones first."""
    low, high = sorted(axis.get_view_interval())
    near = 1e-9 * (high - low)
    return [
        (float(place), label)
        for minor in (False, True)
        for place, label in zip(
            axis.get_ticklocs(minor=minor), axis.get_ticklabels(minor=minor), strict=False
        )
        if label.get_visible() and label.get_text() and low - near <= place <= high + near
    ]


def _boxes(found: Sequence[tuple[float, Text]], sheet: Sheet) -> list[Bbox]:
    return [label.get_window_extent(sheet.pen) for _, label in found]


def _apart(boxes: Sequence[Bbox], along: str) -> bool:
    """Return whether no two boxes cover each other, with a space between them if they are side by side."""
    spans = sorted(_span(box, along) for box in boxes)
    return all(end < start for (_, end), (start, _) in pairwise(spans))


def _span(box: Bbox, along: str) -> tuple[float, float]:
    # The space between two numbers side by side is half a letter's height.
    return (box.x0, box.x1 + box.height / 3) if along == "x" else (box.y0, box.y1)


def _thin_out(axis: Axis, found: Sequence[tuple[float, Text]], boxes: Sequence[Bbox], along: str) -> None:
    """Keep as many labels as do not cover each other; the ticks of the others stay."""
    kept = _every(found, boxes, along) if _is_even(found) else _greedily(found, boxes, along)
    if isinstance(axis.get_minor_locator(), NullLocator):
        axis.set_minor_locator(FixedLocator([place for place, _ in found if place not in kept]))
    if not {*kept} <= {*axis.get_majorticklocs()}:
        axis.set_major_formatter(FuncFormatter(lambda place, _: kept.get(place, "")))
    axis.set_minor_formatter(NullFormatter())
    axis.set_major_locator(FixedLocator([*kept]))


def _is_even(found: Sequence[tuple[float, Text]]) -> bool:
    steps = np.diff([place for place, _ in found])
    return bool(np.allclose(steps, steps[0], rtol=1e-6))


def _every(found: Sequence[tuple[float, Text]], boxes: Sequence[Bbox], along: str) -> dict[float, str]:
    """Return every second label, or third, and so on, and among them that of zero."""
    zero = int(np.argmin(np.abs([place for place, _ in found])))
    for step in range(2, len(found) + 1):
        some = slice(zero % step, None, step)
        if _apart(boxes[some], along):
            break
    return {place: label.get_text() for place, label in found[some]}


def _greedily(found: Sequence[tuple[float, Text]], boxes: Sequence[Bbox], along: str) -> dict[float, str]:
    """Return those labels that cover none before them."""
    kept: dict[float, str] = {}
    room: list[Bbox] = []
    for (place, label), box in zip(found, boxes, strict=True):
        if _apart([*room, box], along):
            kept[place] = label.get_text()
            room.append(box)
    return kept
